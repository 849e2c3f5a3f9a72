"""A trained decoder as a Hugging Face folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.atomic_file import atomic_folder
from synapse_jax.io.families.folder_decoder import folder_weights
from synapse_jax.spec.model import ModelSpec
from synapse_jax.train.trained import TrainedDecoder
from synapse_jax.train.vocabulary import END


def write_folder(decoder: TrainedDecoder, folder: str | os.PathLike[str]) -> None:
    """Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json; equal decoders make
    equal bytes.

    Args:
      decoder: a plain one.
      folder: appears when it is whole; it must not be there, or be empty.

    Raises:
      InputError: the decoder was trained with an attention policy, which no config.json can declare, so that
        programs would load it as a dense model; or the folder cannot be written.
    """
    spec = decoder.spec
    if spec.attention != "dense":
        raise InputError(
            f"model: attention is {spec.attention}: a Hugging Face folder cannot declare it, and programs "
            "would load a dense model; export a GGUF file"
        )
    tensors = {source.tensor: decoder.weights[name] for name, source in folder_weights(spec).items()}
    with atomic_folder(folder) as part:
        _write_json(part / "config.json", _config(decoder))
        _write_json(part / "tokenizer_config.json", _tokenizer_config(spec))
        (part / "tokenizer.json").write_text(decoder.vocabulary.library().to_str(pretty=True), "utf-8")
        about = {key: str(value) for key, value in sorted(decoder.provenance.items())}
        _write_safetensors(part / "model.safetensors", tensors, {"format": "pt", **about})


def _config(decoder: TrainedDecoder) -> dict[str, Any]:
    """Fields of transformers' `LlamaConfig`; `rope_theta` is for versions before 5."""
    spec, end = decoder.spec, decoder.vocabulary.end_id
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": end,
        "eos_token_id": end,
        "head_dim": spec.head_size,
        "hidden_act": "silu",
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn_width,
        "max_position_embeddings": spec.trained_context,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": spec.query_heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "rms_norm_eps": spec.norm_epsilon,
        "rope_parameters": {"rope_theta": spec.rope_base, "rope_type": "default"},
        "rope_theta": spec.rope_base,
        "tie_word_embeddings": spec.tied_output,
        "torch_dtype": "float32",
        "vocab_size": spec.vocab_size,
    }


def _tokenizer_config(spec: ModelSpec) -> dict[str, Any]:
    return {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": END,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "model_max_length": spec.trained_context,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def _write_json(path: Path, fields: dict[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", "utf-8")


def _write_safetensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """The format's own library orders its metadata at random, so bytes would not be the same twice.

    Length of the header as uint64, the header as JSON padded with spaces to 8 bytes, then the tensors
    (https://github.com/huggingface/safetensors, "Format").
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array, "<f4").tobytes())
