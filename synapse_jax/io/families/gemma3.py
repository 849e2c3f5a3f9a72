"""The gemma3 family: Gemma 3, text only.

Norms around attention and FFN and on each head, gelu, a scaled embedding, and sliding layers with a rotary
base of their own. Norm weights are stored with the + 1 that checkpoints leave to the code. Rows are
stored half-split. Follows `gemma3.cpp` of llama.cpp and `modeling_gemma3.py` of transformers.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from synapse_jax.io.families import windows
from synapse_jax.io.families.decoder import amended, decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family, WeightSource
from synapse_jax.io.families.folder_decoder import MOST, NAMES, FolderFamily, folder_weights, read_spec
from synapse_jax.io.families.folder_windows import periodic_layers
from synapse_jax.io.families.rope_fields import FULL, SLIDING, RopeFields, read_base, read_rope, rope_sections
from synapse_jax.io.folder_config import Config
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


FULL_ROPE_BASE = 1e6
"""θ base of full layers, where config.json does not say otherwise."""
_NAMES = NAMES | {
    "attn_post_norm": "post_attention_layernorm.weight",
    "ffn_norm": "pre_feedforward_layernorm.weight",
    "ffn_post_norm": "post_feedforward_layernorm.weight",
}


def _read_config(config: Config, notes: list[str]) -> ModelSpec:
    sections = rope_sections(config)
    full, local = sections.get(FULL), sections.get(SLIDING)

    def rope(config: Config, head_size: int) -> RopeFields:
        base = read_base(config, full, notes, default=FULL_ROPE_BASE)
        return read_rope(config, full, notes, head_size=head_size, base=base)

    # Configs of the first releases name the plain gelu beside the one that counts.
    config.skip("hidden_act")
    head_size = config.positive("head_dim", limit=MOST)
    scalar = config.number("query_pre_attn_scalar")
    if scalar <= 0:
        raise config.fail("query_pre_attn_scalar", f"is {scalar}, not above 0")
    local_base = read_base(config, local, notes, field="rope_local_base_freq", default=LOCAL_ROPE_BASE)
    if read_rope(config, local, notes, head_size=head_size, base=local_base).scaling.type != "none":
        raise (local or config).fail("rope_type", "scales sliding layers, which is not supported")
    spec = read_spec(
        config,
        "gemma3",
        notes,
        window=lambda config, layers: periodic_layers(config, layers, FULL_PERIOD, notes),
        rope=rope,
        head_size=head_size,
        tied=True,
        activations=("gelu_pytorch_tanh",),
        activation_field="hidden_activation",
        activation="gelu",
        qk_norm=True,
        post_norms=True,
        embed_scale=math.sqrt(config.positive("hidden_size")),
        query_scale=None if scalar == head_size else scalar**-0.5,
        local_rope_base=local_base,
    )
    return spec if spec.window else dataclasses.replace(spec, local_rope_base=None)


def _folder_weights(spec: ModelSpec) -> dict[str, WeightSource]:
    return folder_weights(spec, _NAMES, norm_offset=1.0)


FOLDER_FAMILY = FolderFamily({"gemma3_text": "Gemma3ForCausalLM"}, _read_config, _folder_weights)
