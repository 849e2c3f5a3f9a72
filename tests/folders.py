"""Hugging Face folders that tests make; neither transformers nor safetensors is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tests.tiny import MERGES, Tiny, fused_weights, tiny_weights, vocabulary

TRAINING = ["the rain in the north and the wind on the moor, hear the rain <|im_end|> it's 1234 Київ"] * 20
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}"

Fields = dict[str, Any]
Arrays = dict[str, np.ndarray]

_NAMES = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "qkv": "self_attn.qkv_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "gate_up": "mlp.gate_up_proj.weight",
    "down": "mlp.down_proj.weight",
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
_GEMMA_NAMES = _NAMES | {
    "attn_post_norm": "post_attention_layernorm.weight",
    "ffn_norm": "pre_feedforward_layernorm.weight",
    "ffn_post_norm": "post_feedforward_layernorm.weight",
}
_TYPES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
}


def train_tokenizer(folder: Path, **files: Fields) -> tokenizers.Tokenizer:
    """Writes a tokenizer.json with byte-level BPE, and the small JSON files that are given by their stems.

    Returns:
      the library's own tokenizer: the control tokens are `<|endoftext|>` and `<|im_end|>`.
    """
    engine = tokenizers.Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    _byte_level(engine).train_from_iterator(TRAINING, trainer)
    engine.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    folder.mkdir(exist_ok=True)
    engine.save(str(folder / "tokenizer.json"))
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return engine


def write_folder(
    folder: Path,
    tiny: Tiny,
    *,
    dtype: str | dict[str, str] = "F32",
    shards: int = 1,
    old: bool = False,
    mutate: Callable[[Fields, Arrays], None] | None = None,
) -> Path:
    """Writes a TINY model as a Hugging Face folder: the same weights and vocabulary as `write_tiny`.

    Args:
      folder: is made if need be.
      tiny: the model; one that transformers has.
      dtype: F32, F16 or BF16, one for all tensors or by name; values are rounded to the nearest.
      shards: files of weights; with more than one there is an index.
      old: whether RoPE is spelled as before transformers 5.
      mutate: changes config.json and tensors in place before they are written.
    """
    folder.mkdir(exist_ok=True)
    config, tensors = folder_config(tiny, old=old), folder_tensors(tiny)
    if mutate is not None:
        mutate(config, tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(folder, tiny.vocab)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return folder
    places, size = {}, 0
    for i, names in enumerate(np.array_split(list(tensors), shards)):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {str(name): tensors[name] for name in names}
        size += write_safetensors(folder / file, part, dtype)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def folder_config(tiny: Tiny, *, old: bool = False) -> Fields:
    """config.json of a TINY model."""
    family = "mistral" if tiny.arch == "llama" and tiny.window else tiny.arch
    model_type, name = _TYPES[family]
    assert tiny.rotary == tiny.head_size or family == "phi3", "only Phi-3 rotates a part of a head"
    config: Fields = {
        "architectures": [name],
        "model_type": model_type,
        "vocab_size": tiny.vocab,
        "hidden_size": tiny.D,
        "intermediate_size": tiny.ffn_width,
        "num_hidden_layers": tiny.layers,
        "num_attention_heads": tiny.query_heads,
        "num_key_value_heads": tiny.kv_heads,
        "head_dim": tiny.head_size,
        "max_position_embeddings": tiny.context,
        "rms_norm_eps": tiny.norm_epsilon,
        "tie_word_embeddings": tiny.tied,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "transformers_version": "5.0.0",
        "use_cache": True,
        "pad_token_id": None,
    }
    if family == "llama":
        config["attention_bias"] = tiny.biased
    if family in ("mistral", "phi3"):
        config["sliding_window"] = tiny.window or None
    if family in ("qwen2", "qwen3"):
        config |= {
            "use_sliding_window": tiny.window > 0,
            "sliding_window": tiny.window or 4096,
            "max_window_layers": 0,
        }
    if family == "phi3":
        config["partial_rotary_factor"] = tiny.rotary / tiny.head_size
        config["original_max_position_embeddings"] = (tiny.rope and tiny.rope.original) or tiny.context
    if family == "gemma3":
        del config["hidden_act"]
        kinds = ["sliding_attention" if slides else "full_attention" for slides in tiny.window_layers]
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": tiny.head_size,
            "sliding_window": tiny.window,
            **({"sliding_window_pattern": tiny.period} if old else {"layer_types": kinds}),
        }
    return config | _rope(tiny, old)


def _rope(tiny: Tiny, old: bool) -> Fields:
    scaling = tiny.rope.parameters() if tiny.rope else {"rope_type": "default"}
    if old:
        if tiny.arch != "gemma3":  # its first configs had the newer name already
            scaling["type"] = scaling.pop("rope_type")
        fields: Fields = {"rope_theta": tiny.rope_base, "rope_scaling": scaling if tiny.rope else None}
        return fields | ({"rope_local_base_freq": tiny.local_rope_base} if tiny.arch == "gemma3" else {})
    scaling["rope_theta"] = tiny.rope_base
    if tiny.arch != "gemma3":
        return {"rope_parameters": scaling}
    local = {"rope_type": "default", "rope_theta": tiny.local_rope_base}
    return {"rope_parameters": {"full_attention": scaling, "sliding_attention": local}}


def tensor_name(arch: str, name: str) -> str:
    """What transformers calls a canonical weight."""
    prefix, _, last = name.rpartition(".")
    own = (_GEMMA_NAMES if arch == "gemma3" else _NAMES)[last]
    return f"model.{prefix}.{own}" if prefix else own


def folder_tensors(tiny: Tiny, *, fused: bool | None = None) -> Arrays:
    """The canonical weights by the names of transformers; Gemma's norms without their 1.

    Args:
      tiny: The model.
      fused: Whether the projections are stacked, as Phi3 has them; None: as the architecture has them.
    """
    weights = tiny_weights(tiny)
    weights = fused_weights(weights) if (tiny.arch == "phi3" if fused is None else fused) else weights
    tensors = {}
    for name, array in weights.items():
        # Gemma's code adds the 1 that GGUF files hold already.
        less_one = tiny.arch == "gemma3" and name.endswith("norm")
        tensors[tensor_name(tiny.arch, name)] = array - less_one
    if tiny.arch == "llama" and tiny.biased:
        # Llama's attention_bias also adds one to the output projection; these models have none.
        for i in range(tiny.layers):
            tensors[f"model.layers.{i}.self_attn.o_proj.bias"] = np.zeros(tiny.D, np.float32)
    return tensors


def write_safetensors(path: Path, tensors: Arrays, dtype: str | dict[str, str] = "F32") -> int:
    """Writes a safetensors file; returns the bytes of its tensors."""
    header: Fields = {}
    parts, offset = [], 0
    for name, array in tensors.items():
        kind = dtype if isinstance(dtype, str) else dtype[name]
        data = _stored(array, kind)
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        parts.append(data)
        offset += len(data)
    _write_safetensors(path, json.dumps(header), b"".join(parts))
    return offset


def change_header(path: Path, change: Callable[[str], str]) -> None:
    """Rewrites the JSON of a safetensors file, right or wrong; the tensors' bytes stay."""
    stored = path.read_bytes()
    end = 8 + int.from_bytes(stored[:8], "little")
    _write_safetensors(path, change(stored[8:end].decode()), stored[end:])


def _write_safetensors(path: Path, header: str, data: bytes) -> None:
    text = header.encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _stored(array: np.ndarray, dtype: str) -> bytes:
    if dtype == "BF16":
        return (rounded(array, "BF16").view(np.uint32) >> 16).astype("<u2").tobytes()
    return array.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[dtype]).tobytes()


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """Values as they are once they have been stored, float32."""
    if dtype != "BF16":
        return array.astype({"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    # To the nearest, ties to even.
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def write_tokenizer(folder: Path, size: int) -> None:
    """The vocabulary of TINY models; ids of its unused tokens are padding rows of the embedding."""
    pieces, _, eos, bos = vocabulary(size)
    ids = {piece: index for index, piece in enumerate(pieces[:bos])}
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    engine = _byte_level(tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges)))
    engine.add_special_tokens([pieces[bos], pieces[eos]])
    engine.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": pieces[bos], "eos_token": pieces[eos], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [eos]}))


def _byte_level(engine: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    return engine
