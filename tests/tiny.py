"""TINY: random-weight models small enough for any test, for this engine and for llama.cpp.

Attention is peaked (query and key weights four times their usual size), so that
an error in rotary positions or masks shows in the numbers.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import gguf
import numpy as np

from tests.gguf_writing import add_value, finish
from tests.tiny_rope import TinyRope

Metadata = dict[str, Any]
Tensors = dict[str, Any]

MERGES = ("Ġ t", "h e", "Ġt he", "i n", "Ġ a", "e r", "o n", "r e")
NORMAL, CONTROL, UNUSED = 1, 3, 5


@dataclasses.dataclass(frozen=True)
class Tiny:
    """Sizes of a TINY model; letters as in STYLE."""

    arch: str = "llama"
    layers: int = 2
    width: int | None = None
    """D; by default 64, and 128 for qwen2 and phi3, whose heads span the width in llama.cpp."""
    query_heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    rotary_size: int | None = None
    """By default the head size; llama.cpp takes nothing else for llama."""
    ffn_width: int = 96
    vocab: int = 288
    context: int = 256
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5
    tied: bool = True
    qkv_bias: bool | None = None
    """By default only for qwen2."""
    rope: TinyRope | None = None
    """RoPE scaling; gemma3's sliding layers have none."""
    window: int = 0
    """Keys that a sliding layer sees; for other families than gemma3 every layer slides."""
    period: int = 6
    """gemma3: the last of so many layers sees all keys."""
    local_rope_base: float = 10000.0
    """gemma3: base of sliding layers."""
    gain: float = 4.0
    """Size of query and key weights beside the usual: how peaked attention is where heads are not normed."""
    seed: int = 0
    # What the float64 evaluation can switch off to show that it counts; files always follow the family.
    qk_norm: bool = True
    post_norms: bool = True
    gelu: bool = True
    embed_scaled: bool = True
    query_scale: float | None = None

    @property
    def D(self) -> int:
        """Width in force."""
        return self.width or (128 if self.arch in ("qwen2", "phi3") else 64)

    @property
    def has_qk_norm(self) -> bool:
        """Whether the family norms the heads of queries and keys."""
        return self.arch in ("qwen3", "gemma3")

    @property
    def window_layers(self) -> tuple[bool, ...]:
        """Which layers slide; none if there is no window."""
        periodic = self.arch == "gemma3"
        return tuple(
            self.window > 0 and not (periodic and i % self.period == self.period - 1)
            for i in range(self.layers)
        )

    @property
    def rotary(self) -> int:
        """Rotary size in force."""
        return self.rotary_size or self.head_size

    @property
    def biased(self) -> bool:
        """Whether there are query, key and value biases."""
        return self.arch == "qwen2" if self.qkv_bias is None else self.qkv_bias


def tiny_weights(tiny: Tiny) -> dict[str, np.ndarray]:
    """Canonical weights, float32, half-split rotary order as in Hugging Face checkpoints.

    The stream of RandomState is frozen by numpy's policy, so the values are the
    same everywhere; those of a tied model are a prefix of the untied one's.
    """
    random = np.random.RandomState(tiny.seed)
    D, F, V = tiny.D, tiny.ffn_width, tiny.vocab
    q_rows, k_rows = tiny.query_heads * tiny.head_size, tiny.kv_heads * tiny.head_size

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    def linear(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return normal(rows, columns, scale=gain / columns**0.5)

    def norm(size: int = D, mean: float = 1.0) -> np.ndarray:
        return mean * (1 + normal(size, scale=0.1))

    weights = {"embed": linear(V, D, 2.0)}
    for i in range(tiny.layers):
        prefix = f"layers.{i}."
        weights[prefix + "attn_norm"] = norm()
        weights[prefix + "q"] = linear(q_rows, D, tiny.gain)
        weights[prefix + "k"] = linear(k_rows, D, tiny.gain)
        weights[prefix + "v"] = linear(k_rows, D)
        weights[prefix + "o"] = linear(D, q_rows)
        if tiny.biased:
            weights[prefix + "q_bias"] = normal(q_rows, scale=1.0)
            weights[prefix + "k_bias"] = normal(k_rows, scale=1.0)
            weights[prefix + "v_bias"] = normal(k_rows, scale=1.0)
        if tiny.has_qk_norm:
            # The norms undo the gain of q and k, and give one of their own.
            weights[prefix + "q_norm"] = norm(tiny.head_size, 2.0)
            weights[prefix + "k_norm"] = norm(tiny.head_size, 2.0)
        weights[prefix + "ffn_norm"] = norm()
        weights[prefix + "gate"] = linear(F, D)
        weights[prefix + "up"] = linear(F, D)
        weights[prefix + "down"] = linear(D, F)
        if tiny.arch == "gemma3":
            weights[prefix + "attn_post_norm"] = norm()
            weights[prefix + "ffn_post_norm"] = norm()
    weights["final_norm"] = norm()
    if not tiny.tied:
        weights["head"] = linear(V, D, 2.0)
    return weights


def tiny_metadata(tiny: Tiny) -> Metadata:
    """Metadata of the file, vocabulary included, by key."""
    arch = tiny.arch
    pieces, types, eos, bos = vocabulary(tiny.vocab)
    window = {f"{arch}.attention.sliding_window": tiny.window} if tiny.window or arch == "phi3" else {}
    if arch == "gemma3":
        window[f"{arch}.attention.sliding_window_pattern"] = tiny.period
        window[f"{arch}.rope.freq_base_swa"] = tiny.local_rope_base
    return {
        # Of a model whose name has "phi3" in it, llama.cpp wants the tokens of Phi-3's vocabulary.
        "general.name": f"tiny {arch}".replace("phi3", "phi 3"),
        f"{arch}.block_count": tiny.layers,
        f"{arch}.context_length": tiny.context,
        f"{arch}.embedding_length": tiny.D,
        f"{arch}.feed_forward_length": tiny.ffn_width,
        f"{arch}.attention.head_count": tiny.query_heads,
        f"{arch}.attention.head_count_kv": tiny.kv_heads,
        f"{arch}.attention.key_length": tiny.head_size,
        f"{arch}.attention.value_length": tiny.head_size,
        f"{arch}.attention.layer_norm_rms_epsilon": tiny.norm_epsilon,
        f"{arch}.rope.dimension_count": tiny.rotary,
        f"{arch}.rope.freq_base": tiny.rope_base,
        f"{arch}.vocab_size": tiny.vocab,
        **window,
        **(tiny.rope.metadata(arch, tiny.context) if tiny.rope else {}),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2" if arch in ("qwen2", "qwen3") else "gpt-2",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.eos_token_id": eos,
        "tokenizer.ggml.bos_token_id": bos,
        "tokenizer.ggml.add_bos_token": False,
    }


def tiny_tensors(tiny: Tiny) -> Tensors:
    """The same weights by GGUF name, query and key rows in adjacent pairs for llama."""
    file_names = {
        "attn_norm": "attn_norm.weight",
        "q": "attn_q.weight",
        "k": "attn_k.weight",
        "v": "attn_v.weight",
        "o": "attn_output.weight",
        "q_bias": "attn_q.bias",
        "k_bias": "attn_k.bias",
        "v_bias": "attn_v.bias",
        "q_norm": "attn_q_norm.weight",
        "k_norm": "attn_k_norm.weight",
        "attn_post_norm": "post_attention_norm.weight",
        "ffn_post_norm": "post_ffw_norm.weight",
        "ffn_norm": "ffn_norm.weight",
        "gate": "ffn_gate.weight",
        "up": "ffn_up.weight",
        "down": "ffn_down.weight",
        "embed": "token_embd.weight",
        "final_norm": "output_norm.weight",
        "head": "output.weight",
    }
    fused = {"qkv": "attn_qkv.weight", "gate_up": "ffn_up.weight"}
    heads = {"q": tiny.query_heads, "k": tiny.kv_heads, "q_bias": tiny.query_heads, "k_bias": tiny.kv_heads}
    weights = fused_weights(tiny_weights(tiny)) if tiny.arch == "phi3" else tiny_weights(tiny)
    tensors = tiny.rope.tensors(tiny.rope_base, tiny.rotary) if tiny.rope else {}
    for name, array in weights.items():
        last = name.rpartition(".")[2]
        if tiny.arch == "llama" and last in heads:
            array = pair_rows(array, heads[last], tiny.rotary)
        prefix = f"blk.{name.split('.')[1]}." if "." in name else ""
        tensors[prefix + (file_names | fused)[last]] = array
    return tensors


def fused_weights(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights with q, k and v stacked as `qkv`, and gate and up as `gate_up`, as phi3 stores them."""
    out = dict(weights)
    for prefix in [name.removesuffix("q") for name in weights if name.endswith(".q")]:
        for whole, parts in (("qkv", "q k v"), ("gate_up", "gate up")):
            out[prefix + whole] = np.concatenate([out.pop(prefix + part) for part in parts.split()])
    return out


def pair_rows(rows: np.ndarray, heads: int, rotary_size: int) -> np.ndarray:
    """Half-split rows to adjacent pairs, as llama.cpp's converter does it, within each head's rotary rows."""
    by_head = rows.reshape(heads, -1, *rows.shape[1:])
    rotated, rest = by_head[:, :rotary_size], by_head[:, rotary_size:]
    halves = rotated.reshape(heads, 2, rotary_size // 2, *rows.shape[1:])
    return np.concatenate([halves.swapaxes(1, 2).reshape(rotated.shape), rest], axis=1).reshape(rows.shape)


def vocabulary(size: int) -> tuple[list[str], list[int], int, int]:
    """A gpt2 BPE vocabulary: 256 bytes, the merges' results, two control tokens, unused tokens up to `size`.

    Returns:
      pieces, token types, the end id (`<|im_end|>`) and the begin id (`<|endoftext|>`).
    """
    # GPT-2's byte alphabet: printable bytes are themselves, the others follow from U+0100.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    pieces = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    pieces += [merge.replace(" ", "") for merge in MERGES]
    types = [NORMAL] * len(pieces)
    bos, eos = len(pieces), len(pieces) + 1
    pieces += ["<|endoftext|>", "<|im_end|>"]
    types += [CONTROL] * 2
    if size < len(pieces):
        raise ValueError(f"a tiny vocabulary has at least {len(pieces)} tokens, not {size}")
    unused = size - len(pieces)
    return pieces + [f"[PAD{i}]" for i in range(unused)], types + [UNUSED] * unused, eos, bos


def write_tiny(
    path: str | pathlib.Path,
    arch: str = "llama",
    *,
    types: dict[str, str] | None = None,
    mutate: Callable[[Metadata, Tensors], None] | None = None,
    **sizes: Any,
) -> Tiny:
    """Writes a TINY model.

    Args:
      path: the file to write.
      arch: `llama`, `qwen2`, `qwen3`, `gemma3` or `phi3`.
      types: stored type by GGUF tensor name, for example {"output.weight": "Q8_0"}; F32 for the others.
      mutate: changes metadata and tensors (by GGUF name) in place before they are
        written. Python ints are written as uint32, floats as float32; a numpy
        scalar keeps its own type.
      **sizes: fields of `Tiny`.

    Returns:
      what was asked for; `tiny_weights` of it gives the weights.
    """
    tiny = Tiny(arch, **sizes)
    metadata, tensors = tiny_metadata(tiny), tiny_tensors(tiny)
    if mutate is not None:
        mutate(metadata, tensors)
    writer = gguf.GGUFWriter(path, metadata.pop("general.architecture", arch))
    for name, value in metadata.items():
        add_value(writer, name, value)
    for name, array in tensors.items():
        kind = gguf.GGMLQuantizationType[(types or {}).get(name, "F32")]
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    finish(writer)
    return tiny
