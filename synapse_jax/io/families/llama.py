"""The llama family: Llama, SmolLM, Mistral and others that GGUF stores as `llama`.

GGUF stores query and key rows, and their biases, as adjacent rotary pairs; Hugging Face folders half-split.
"""

from __future__ import annotations

import re

from synapse_jax.io.families import windows
from synapse_jax.io.families.decoder import amended, decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family, WeightSource
from synapse_jax.io.families.folder_decoder import FolderFamily, folder_weights, read_spec
from synapse_jax.io.families.folder_windows import every_layer_of_mistral, no_layer
from synapse_jax.io.folder_config import Config
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


def _read_config(config: Config, notes: list[str]) -> ModelSpec:
    if config.text("model_type") == "mistral":
        config.skip("max_window_layers")
        return read_spec(
            config,
            "llama",
            notes,
            window=lambda config, layers: every_layer_of_mistral(config, layers, notes),
        )
    # transformers adds such biases to the output projection as well; those must be zero (`folders`).
    biased = config.flag("attention_bias", False)
    return read_spec(config, "llama", notes, window=no_layer, kv_heads_optional=True, qkv_bias=biased)


FOLDER_FAMILY = FolderFamily(
    {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}, _read_config, folder_weights
)
