"""Spec and weights of the decoder that all families share, with the parts that only some have."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.io.families.family import WeightSource
from synapse_jax.io.families.rope_keys import read_scaling
from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.quoting import shown_path
from synapse_jax.spec.model import ModelSpec

DEFAULT_ROPE_BASE = 10000.0
"""`rope_freq_base_train` in llama.cpp's `llama_model_base::load_hparams`."""

KNOWN_KEYS = frozenset(
    (
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "vocab_size",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.dimension_count",
        "rope.freq_base",
    )
)
"""Keys that `read_decoder_spec` reads, without the architecture's prefix."""


def read_decoder_spec(file: GgufFile, arch: str, *, qkv_bias: bool, notes: list[str]) -> ModelSpec:
    """Reads the spec of a decoder from metadata and the embedding's shape.

    Args:
      file: an open file.
      arch: prefix of the keys.
      qkv_bias: whether the projections have biases.
      notes: gets a line for each default in force.

    Raises:
      InputError: for a key that is missing, of the wrong type, or at odds with another.
    """
    heads = _positive(file, f"{arch}.attention.head_count")
    width = _positive(file, f"{arch}.embedding_length")
    head_size = _head_size(file, arch, width, heads)
    vocab_size = _vocab_size(file, arch, notes)
    rotary_size = _positive_or(file, f"{arch}.rope.dimension_count", head_size, notes)
    rope_base = file.optional_float(f"{arch}.rope.freq_base")
    if rope_base is None:
        rope_base = DEFAULT_ROPE_BASE
        notes.append(f"{arch}.rope.freq_base is missing: {DEFAULT_ROPE_BASE} is used")
    with _naming(file):
        return ModelSpec(
            arch=arch,
            layers=_layers(file, arch),
            width=width,
            ffn_width=_positive(file, f"{arch}.feed_forward_length"),
            query_heads=heads,
            kv_heads=_positive_or(file, f"{arch}.attention.head_count_kv", heads, notes),
            head_size=head_size,
            rotary_size=rotary_size,
            vocab_size=vocab_size,
            trained_context=_positive(file, f"{arch}.context_length"),
            norm_epsilon=file.require_float(f"{arch}.attention.layer_norm_rms_epsilon"),
            rope_base=rope_base,
            rope_scaling=read_scaling(file, arch, rotary_size, notes),
            local_rope_base=None,
            qkv_bias=qkv_bias,
            tied_output="output.weight" not in file.tensors,
        )


def amended(file: GgufFile, spec: ModelSpec, **fields: Any) -> ModelSpec:
    """The spec with what a family knows beyond it; InputError names the file if the spec refuses it."""
    with _naming(file):
        return dataclasses.replace(spec, **fields)


def decoder_weights(spec: ModelSpec, *, paired: bool = False) -> dict[str, WeightSource]:
    """Every weight of a decoder by canonical name.

    Args:
      spec: sizes; D, F, N, K, H and V below are its.
      paired: whether the file stores query and key rows as adjacent rotary pairs.

    Returns:
      `embed` [V, D], `layers.{i}.` with `attn_norm` [D], `q` [N*H, D], `k` and `v`
      [K*H, D], with biases also `q_bias` [N*H], `k_bias` and `v_bias` [K*H], with head
      norms `q_norm` and `k_norm` [H], then `o` [D, N*H], `ffn_norm` [D], `gate` and
      `up` [F, D], `down` [D, F], with post norms `attn_post_norm` and `ffn_post_norm`
      [D]; `final_norm` [D]; `head` [V, D] where the output is not tied.
    """
    D, F, V = spec.width, spec.ffn_width, spec.vocab_size
    q_rows, k_rows = spec.query_heads * spec.head_size, spec.kv_heads * spec.head_size
    q_pairs, k_pairs = (spec.query_heads, spec.kv_heads) if paired else (0, 0)
    weights = {"embed": WeightSource("token_embd.weight", (V, D))}
    for i in range(spec.layers):
        block = {
            "attn_norm": WeightSource("attn_norm.weight", (D,)),
            "q": WeightSource("attn_q.weight", (q_rows, D), q_pairs),
            "k": WeightSource("attn_k.weight", (k_rows, D), k_pairs),
            "v": WeightSource("attn_v.weight", (k_rows, D)),
        }
        if spec.qkv_bias:
            block["q_bias"] = WeightSource("attn_q.bias", (q_rows,), q_pairs)
            block["k_bias"] = WeightSource("attn_k.bias", (k_rows,), k_pairs)
            block["v_bias"] = WeightSource("attn_v.bias", (k_rows,))
        if spec.qk_norm:
            block["q_norm"] = WeightSource("attn_q_norm.weight", (spec.head_size,))
            block["k_norm"] = WeightSource("attn_k_norm.weight", (spec.head_size,))
        block["o"] = WeightSource("attn_output.weight", (D, q_rows))
        if spec.post_norms:
            block["attn_post_norm"] = WeightSource("post_attention_norm.weight", (D,))
        block["ffn_norm"] = WeightSource("ffn_norm.weight", (D,))
        block["gate"] = WeightSource("ffn_gate.weight", (F, D))
        block["up"] = WeightSource("ffn_up.weight", (F, D))
        block["down"] = WeightSource("ffn_down.weight", (D, F))
        if spec.post_norms:
            block["ffn_post_norm"] = WeightSource("post_ffw_norm.weight", (D,))
        for name, source in block.items():
            weights[f"layers.{i}.{name}"] = dataclasses.replace(source, tensor=f"blk.{i}.{source.tensor}")
    weights["final_norm"] = WeightSource("output_norm.weight", (D,))
    if not spec.tied_output:
        weights["head"] = WeightSource("output.weight", (V, D))
    return weights


def fused_decoder_weights(spec: ModelSpec) -> dict[str, WeightSource]:
    """As `decoder_weights`, where q, k and v are rows of `attn_qkv`, and gate and up rows of `ffn_up`."""
    fused = {"q": "attn_qkv", "k": "attn_qkv", "v": "attn_qkv", "gate": "ffn_up", "up": "ffn_up"}
    weights = decoder_weights(spec)
    for i in range(spec.layers):
        parts = {f"layers.{i}.{part}": f"blk.{i}.{tensor}.weight" for part, tensor in fused.items()}
        rows = dict.fromkeys(parts.values(), 0)
        first = {}
        for name, tensor in parts.items():
            first[name] = rows[tensor]
            rows[tensor] += weights[name].shape[0]
        for name, tensor in parts.items():
            weights[name] = WeightSource(
                tensor, weights[name].shape, first_row=first[name], stored_rows=rows[tensor]
            )
    return weights


@contextlib.contextmanager
def _naming(file: GgufFile) -> Iterator[None]:
    """Puts the file's name before what the spec itself refuses, since that does not know it."""
    try:
        yield
    except InputError as error:
        if str(error).startswith("model: "):
            raise InputError(f"{shown_path(file.path)}: {error}") from None
        raise


def _positive(file: GgufFile, key: str) -> int:
    if file.value_types.get(key, "").startswith("array"):
        raise file.fail(key, "is an array with a value for each layer, which is not supported")
    value = file.require_int(key)
    if value < 1:
        raise file.fail(key, f"is {value}, not a positive integer")
    return value


def _positive_or(file: GgufFile, key: str, default: int, notes: list[str]) -> int:
    if key in file.metadata:
        return _positive(file, key)
    notes.append(f"{key} is missing: {default} is used")
    return default


def _layers(file: GgufFile, arch: str) -> int:
    key = f"{arch}.block_count"
    layers = _positive(file, key)
    # Names are made for every layer, so a wild count must stop here.
    if layers > len(file.tensors):
        raise file.fail(key, f"is {layers}, but the file has only {len(file.tensors)} tensors")
    return layers


def _head_size(file: GgufFile, arch: str, width: int, heads: int) -> int:
    key, value_key = f"{arch}.attention.key_length", f"{arch}.attention.value_length"
    if key in file.metadata:
        size = _positive(file, key)
    elif width % heads:
        raise file.fail(key, f"is missing, and {heads} heads do not divide the width {width}")
    else:
        size = width // heads
    value_size = _positive(file, value_key) if value_key in file.metadata else width // heads
    if value_size != size:
        raise file.fail(value_key, f"is {value_size} and the key length is {size}: they must be equal")
    return size


def _vocab_size(file: GgufFile, arch: str, notes: list[str]) -> int:
    """Rows of the embedding; the token list must have as many."""
    name = "token_embd.weight"
    if name not in file.tensors:
        raise file.fail(f"tensor '{name}'", f"is missing ({len(file.tensors)} tensors are there)")
    rows = file.tensors[name].shape[0]
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) != rows:
        raise file.fail("tokenizer.ggml.tokens", f"has {len(tokens)} tokens, but {name} has {rows} rows")
    key = f"{arch}.vocab_size"
    if key in file.metadata and _positive(file, key) != rows:
        notes.append(f"{key} is {file.metadata[key]}, but {name} has {rows} rows: {rows} is used")
    return rows
