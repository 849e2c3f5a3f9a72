"""The qwen3 family: Qwen3, whose heads pass a norm of their own before rotation.

Rows are stored half-split, without biases; the head size is the file's, not width / heads.
"""

from __future__ import annotations

from synapse_jax.io.families.decoder import amended, decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family
from synapse_jax.io.families.folder_decoder import MOST, FolderFamily, folder_weights, read_spec
from synapse_jax.io.families.folder_windows import upper_layers
from synapse_jax.io.folder_config import Config
from synapse_jax.io.gguf import GgufFile
from synapse_jax.spec.model import ModelSpec


def _read_spec(file: GgufFile, notes: list[str]) -> ModelSpec:
    spec = read_decoder_spec(file, "qwen3", qkv_bias=False, notes=notes)
    return amended(file, spec, qk_norm=True)


FAMILY = Family("qwen3", _read_spec, decoder_weights)


def _read_config(config: Config, notes: list[str]) -> ModelSpec:
    head_size = config.positive("head_dim", limit=MOST)
    return read_spec(config, "qwen3", notes, window=upper_layers, head_size=head_size, qk_norm=True)


FOLDER_FAMILY = FolderFamily({"qwen3": "Qwen3ForCausalLM"}, _read_config, folder_weights)
