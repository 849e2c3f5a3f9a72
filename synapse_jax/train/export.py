"""A trained decoder as one GGUF file."""

from __future__ import annotations

import os

import gguf
import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.atomic_file import atomic_path
from synapse_jax.io.families import FAMILIES
from synapse_jax.io.families.synapse import POLICY
from synapse_jax.spec.model import ModelSpec
from synapse_jax.train.trained import TRAINING_KEY, TrainedDecoder

_FILE_TYPES = {"F32": gguf.LlamaFileType.ALL_F32, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
"""Stored types of matrices to what the file says about itself."""


def write_gguf(decoder: TrainedDecoder, path: str | os.PathLike[str], *, weight_type: str = "F32") -> None:
    """Writes a decoder as a GGUF file; equal decoders make equal bytes.

    A plain decoder is of architecture `llama`, with query and key rows as adjacent rotary pairs. One that was
    trained with an attention policy is of architecture `synapse` (`io.families.synapse`), which no other
    program loads.

    Args:
      decoder: what is written.
      path: appears when it is whole; a file of that name is replaced.
      weight_type: `F32`, or `Q8_0` for matrices, whose rows must then be blocks of 32. Norms are float32.

    Raises:
      InputError: the file cannot be written, or the type is not one that the matrices can have.
    """
    if weight_type not in _FILE_TYPES:
        raise InputError(
            f"weight type {weight_type!r} is not supported; choose from {', '.join(_FILE_TYPES)}"
        )
    tensors = _tensors(decoder, gguf.GGMLQuantizationType[weight_type])
    with atomic_path(path) as part:
        writer = gguf.GGUFWriter(part, decoder.spec.arch)
        _add_metadata(writer, decoder, weight_type)
        for name, (array, kind) in tensors.items():
            writer.add_tensor(name, array, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def pair_rows(rows: np.ndarray, heads: int, rotary_size: int) -> np.ndarray:
    """Turns half-split rotary rows into adjacent pairs: what `io.families.unpair_rows` undoes.

    Args:
      rows: [heads * H, ...], a query or key projection.
      heads: its own head count.
      rotary_size: leading dimensions of a head that are rotated; even.

    Returns:
      a new array of the same shape and dtype.
    """
    by_head = rows.reshape(heads, rows.shape[0] // heads, *rows.shape[1:])
    out, half = by_head.copy(), rotary_size // 2
    out[:, 0:rotary_size:2] = by_head[:, :half]
    out[:, 1:rotary_size:2] = by_head[:, half:rotary_size]
    return out.reshape(rows.shape)


def _tensors(
    decoder: TrainedDecoder, matrix_type: gguf.GGMLQuantizationType
) -> dict[str, tuple[np.ndarray, gguf.GGMLQuantizationType]]:
    """Stored bytes and type of each tensor by its name in the file."""
    spec, tensors = decoder.spec, {}
    block, _ = gguf.GGML_QUANT_SIZES[matrix_type]
    for name, source in FAMILIES[spec.arch].weights(spec).items():
        array = decoder.weights[name]
        if source.paired_heads:
            array = pair_rows(array, source.paired_heads, spec.rotary_size)
        kind = matrix_type if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        if array.ndim == 2 and array.shape[1] % block:
            raise InputError(
                f"weight {name} has rows of {array.shape[1]}, which {matrix_type.name} cannot hold: "
                f"its blocks are {block}"
            )
        tensors[source.tensor] = gguf.quants.quantize(np.ascontiguousarray(array), kind), kind
    return tensors


def _add_metadata(writer: gguf.GGUFWriter, decoder: TrainedDecoder, weight_type: str) -> None:
    writer.add_type("model")
    writer.add_file_type(_FILE_TYPES[weight_type])
    if weight_type != "F32":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in _spec_keys(decoder.spec).items():
        _add(writer, f"{decoder.spec.arch}.{key}", value)
    for key, value in decoder.vocabulary.metadata().items():
        writer.add_array(key, value) if isinstance(value, list) else _add(writer, key, value)
    for key, value in sorted(decoder.provenance.items()):
        _add(writer, key, value)


def _spec_keys(spec: ModelSpec) -> dict[str, str | int | float]:
    """Keys of the architecture, without its prefix; see `io.families.decoder.KNOWN_KEYS`."""
    keys: dict[str, str | int | float] = {
        "vocab_size": spec.vocab_size,
        "context_length": spec.trained_context,
        "embedding_length": spec.width,
        "block_count": spec.layers,
        "feed_forward_length": spec.ffn_width,
        "attention.head_count": spec.query_heads,
        "attention.head_count_kv": spec.kv_heads,
        "attention.key_length": spec.head_size,
        "attention.value_length": spec.head_size,
        "attention.layer_norm_rms_epsilon": spec.norm_epsilon,
        "rope.dimension_count": spec.rotary_size,
        "rope.freq_base": spec.rope_base,
    }
    return keys if spec.attention == "dense" else {**keys, POLICY: spec.attention}


def _add(writer: gguf.GGUFWriter, key: str, value: str | int | float) -> None:
    """Adds a key in the type that readers expect; numbers about the training keep all their digits."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        (writer.add_uint32 if value < 1 << 32 else writer.add_uint64)(key, value)
    elif isinstance(value, float):
        (writer.add_float64 if key.startswith(TRAINING_KEY) else writer.add_float32)(key, value)
    else:
        writer.add_string(key, value)
