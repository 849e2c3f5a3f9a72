"""The gemma3 family: Gemma 3, text only.

Norms around attention and FFN and on each head, gelu, a scaled embedding, and sliding layers with a rotary
base of their own. Norm weights are stored with the + 1 that checkpoints leave to the code. Rows are
stored half-split. Follows `gemma3.cpp` of llama.cpp and `modeling_gemma3.py` of transformers.
"""

from __future__ import annotations

import math
from typing import Any

from synapse_jax.io.families import windows
from synapse_jax.io.families.decoder import amended, decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family
from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.quoting import quote
from synapse_jax.spec.model import ModelSpec

FULL_PERIOD = 6
"""Of so many layers the last sees all keys, where the file does not say otherwise."""
LOCAL_ROPE_BASE = 10000.0
"""θ base of sliding layers, where the file does not say otherwise."""
LAYERS_27B = 62
"""The one size whose queries are scaled by width / heads, 168, and not by the head size, 128."""

_GELU = ("gelu", "gelu_pytorch_tanh")


def _read_spec(file: GgufFile, notes: list[str]) -> ModelSpec:
    spec = read_decoder_spec(file, "gemma3", qkv_bias=False, notes=notes)
    activation = file.optional_text("gemma3.hidden_activation")
    if activation not in (None, *_GELU):
        raise file.fail("gemma3.hidden_activation", f"is {quote(activation)}, not {' or '.join(_GELU)}")
    return amended(
        file,
        spec,
        qk_norm=True,
        post_norms=True,
        activation="gelu",
        embed_scale=math.sqrt(spec.width),
        query_scale=_query_scale(spec),
        **_local_layers(file, spec, notes),
    )


def _query_scale(spec: ModelSpec) -> float | None:
    """1/sqrt(width / heads) for the 27B, by whose layer count llama.cpp knows it; else the spec's own."""
    if spec.layers != LAYERS_27B:
        return None
    return 1 / math.sqrt(spec.width // spec.query_heads)


def _local_layers(file: GgufFile, spec: ModelSpec, notes: list[str]) -> dict[str, Any]:
    """Window, its layers and their rotary base; nothing where no layer slides."""
    window, layers = windows.read_window(file, "gemma3", spec.layers, FULL_PERIOD, notes)
    if not window:
        return {}
    key = "gemma3.rope.freq_base_swa"
    base = file.optional_float(key)
    if base is None:
        base = LOCAL_ROPE_BASE
        notes.append(f"{key} is missing: {base} is used")
    return {"window": window, "window_layers": layers, "local_rope_base": base}


FAMILY = Family(
    "gemma3",
    _read_spec,
    decoder_weights,
    windows.KNOWN_KEYS | {"rope.freq_base_swa", "hidden_activation"},
)
