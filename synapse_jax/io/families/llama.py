"""The llama family: Llama, SmolLM, Mistral and others that GGUF stores as `llama`.

Query and key rows, and their biases, are stored as adjacent rotary pairs.
"""

from __future__ import annotations

import re

from synapse_jax.io.families import windows
from synapse_jax.io.families.decoder import amended, decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family, WeightSource
from synapse_jax.io.gguf import GgufFile
from synapse_jax.spec.model import ModelSpec

_BIAS = re.compile(r"blk\.\d+\.attn_[qkv]\.bias")


def _read_spec(file: GgufFile, notes: list[str]) -> ModelSpec:
    # No key tells of biases. One bias anywhere means that all must be there.
    qkv_bias = any(_BIAS.fullmatch(name) for name in file.tensors)
    spec = read_decoder_spec(file, "llama", qkv_bias=qkv_bias, notes=notes)
    # llama.cpp's converter writes no window for llama, and its llama does not read one. A file that has one
    # is a Mistral that says what transformers does with it: every layer sees only the window.
    window, layers = windows.read_window(file, "llama", spec.layers, 0, notes)
    if not 0 < window < spec.trained_context:
        return spec
    notes.append(
        f"llama.attention.sliding_window is {window}: applied as in transformers' Mistral; "
        "llama.cpp leaves it out"
    )
    return amended(file, spec, window=window, window_layers=layers)


def _weights(spec: ModelSpec) -> dict[str, WeightSource]:
    return decoder_weights(spec, paired=True)


# tensor_data_layout is a remark of early converters; it names the pairing that all llama files have.
FAMILY = Family("llama", _read_spec, _weights, windows.KNOWN_KEYS | {"tensor_data_layout"})
