"""The qwen2 family: Qwen2 and Qwen2.5, with query, key and value biases.

Rows are stored half-split, as in the original checkpoints. llama.cpp takes files
without biases; no released model is one, so here they are missing tensors.
"""

from __future__ import annotations

from synapse_jax.io.families.decoder import decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family
from synapse_jax.io.families.folder_decoder import FolderFamily, folder_weights, read_spec
from synapse_jax.io.families.folder_windows import upper_layers
from synapse_jax.io.folder_config import Config
from synapse_jax.io.gguf import GgufFile
from synapse_jax.spec.model import ModelSpec


def _read_spec(file: GgufFile, notes: list[str]) -> ModelSpec:
    return read_decoder_spec(file, "qwen2", qkv_bias=True, notes=notes)


FAMILY = Family("qwen2", _read_spec, decoder_weights)


def _read_config(config: Config, notes: list[str]) -> ModelSpec:
    return read_spec(config, "qwen2", notes, window=upper_layers, qkv_bias=True)


FOLDER_FAMILY = FolderFamily({"qwen2": "Qwen2ForCausalLM"}, _read_config, folder_weights)
