"""The llama family: Llama, SmolLM, Mistral and others that GGUF stores as `llama`.

Query and key rows, and their biases, are stored as adjacent rotary pairs.
"""

from __future__ import annotations

import re

from synapse_jax.io.families.decoder import decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family, WeightSource
from synapse_jax.io.gguf import GgufFile
from synapse_jax.spec.model import ModelSpec

_BIAS = re.compile(r"blk\.\d+\.attn_[qkv]\.bias")


def _read_spec(file: GgufFile, notes: list[str]) -> ModelSpec:
    # No key tells of biases. One bias anywhere means that all must be there.
    qkv_bias = any(_BIAS.fullmatch(name) for name in file.tensors)
    return read_decoder_spec(file, "llama", qkv_bias=qkv_bias, notes=notes)


def _weights(spec: ModelSpec) -> dict[str, WeightSource]:
    return decoder_weights(spec, paired=True)


# tensor_data_layout is a remark of early converters; it names the pairing that all llama files have.
FAMILY = Family("llama", _read_spec, _weights, frozenset(("tensor_data_layout",)))
