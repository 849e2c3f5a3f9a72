"""Other engines that evaluate a TINY model on given tokens: transformers and llama.cpp.

Both are optional (extra `control`; torch is the user's) and imported when called.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.folders import folder_tensors
from tests.tiny import Tiny, fused_weights, tiny_weights, write_tiny
from tests.tiny_rope import TinyRope

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}


def require_transformers() -> None:
    """Skips a test where transformers or torch is not there."""
    import pytest  # tools use the rest of this module without it

    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers (extra control) is not installed")


def transformers_class(tiny: Tiny) -> str:
    """The class that computes this model.

    transformers' Llama rotates whole heads only. Phi3 is the same network with rotary
    sizes, its projections stacked; Mistral is the same with a window.
    """
    if tiny.rotary != tiny.head_size:
        return "Phi3ForCausalLM"
    if tiny.arch == "llama" and tiny.window:
        return "MistralForCausalLM"
    return _CLASSES[tiny.arch]


def transformers_model(tiny: Tiny) -> Any:
    """A transformers model with the canonical weights: float32, on the CPU, eager attention."""
    import torch
    import transformers

    kind = getattr(transformers, transformers_class(tiny))
    model = kind(_transformers_config(tiny, kind.config_class)).to(torch.float32).eval()
    tensors = folder_tensors(tiny, fused=transformers_class(tiny) == "Phi3ForCausalLM")
    given = {name: torch.from_numpy(array) for name, array in tensors.items()}
    missing, unexpected = model.load_state_dict(given, strict=False)
    # A tied head shares the embedding's memory.
    if unexpected or set(missing) - ({"lm_head.weight"} if tiny.tied else set()):
        raise ValueError(f"missing {missing}, unexpected {unexpected}")
    return model


def transformers_folder_model(folder: Path) -> Any:
    """The model that transformers makes of a Hugging Face folder: float32, on the CPU, eager attention."""
    import torch
    import transformers

    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    # It draws weights that it does not find.
    if any(found.values()):
        raise ValueError(f"{folder}: {found}")
    return model.eval()


def transformers_logits(model: Any, ids: Sequence[int]) -> np.ndarray:
    """Logits at every position, float32 [n, V], without a cache."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([list(ids)]), use_cache=False).logits[0].numpy()


def llama_cpp_logits(path: Path, ids: Sequence[int]) -> np.ndarray:
    """Logits of a GGUF file at every position, float32 [n, V]: F32 cache, no flash attention, one thread."""
    import llama_cpp

    llm = llama_cpp.Llama(
        str(path),
        n_ctx=len(ids),
        n_batch=len(ids),
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    llm.eval(list(ids))
    logits = np.array(llm.scores[: len(ids)], np.float32)
    llm.close()
    return logits


def llama_cpp_takes(tiny: Tiny) -> bool:
    """Whether llama.cpp computes this model, if need be as phi3: that one has heads that span the width.

    It has windows for gemma3 only, llama3's divisors for llama only, longrope's for llama and phi3, and reads
    none of the yarn_ keys.
    """
    if tiny.window and tiny.arch != "gemma3":
        return False
    rope = tiny.rope or TinyRope("none")
    if any("yarn_" in key for key in rope.metadata(tiny.arch, tiny.context)):
        return False
    if tiny.arch not in {"llama3": ("llama",), "longrope": ("llama", "phi3")}.get(rope.type, (tiny.arch,)):
        return False
    return tiny.rotary == tiny.head_size or tiny.query_heads * tiny.head_size == tiny.D


def write_phi3(path: Path, tiny: Tiny) -> None:
    """Writes a llama model as phi3, which llama.cpp runs with partial rotary heads."""

    def rename(metadata: dict[str, Any], tensors: dict[str, Any]) -> None:
        for key in [key for key in metadata if key.startswith("llama.")]:
            metadata["phi3." + key.removeprefix("llama.")] = metadata.pop(key)
        metadata["general.architecture"] = "phi3"
        weights = fused_weights(tiny_weights(tiny))
        for i in range(tiny.layers):
            for part in ("attn_q", "attn_k", "attn_v", "ffn_gate"):
                del tensors[f"blk.{i}.{part}.weight"]
            # phi3 rotates half-split heads: the canonical order.
            tensors[f"blk.{i}.attn_qkv.weight"] = weights[f"layers.{i}.qkv"]
            tensors[f"blk.{i}.ffn_up.weight"] = weights[f"layers.{i}.gate_up"]

    write_tiny(path, **vars(tiny), mutate=rename)


def _transformers_config(tiny: Tiny, config_class: Any) -> Any:
    scaled = tiny.rope.parameters() if tiny.rope else {"rope_type": "default"}
    rope: dict[str, Any] = {**scaled, "rope_theta": tiny.rope_base}
    name = config_class.__name__
    sizes: dict[str, Any] = {"hidden_act": "silu"}
    if name == "Phi3Config":
        rope["partial_rotary_factor"] = tiny.rotary / tiny.head_size
        sizes["original_max_position_embeddings"] = (tiny.rope and tiny.rope.original) or tiny.context
    if name == "LlamaConfig":
        sizes["attention_bias"] = tiny.biased
    if name in ("Phi3Config", "MistralConfig"):
        sizes["sliding_window"] = tiny.window or None
    if name == "Gemma3TextConfig":
        local = {"rope_type": "default", "rope_theta": tiny.local_rope_base}
        rope = {"full_attention": rope, "sliding_attention": local}
        kinds = ["sliding_attention" if slides else "full_attention" for slides in tiny.window_layers]
        sizes = {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": tiny.head_size,
            "sliding_window": tiny.window,
            "layer_types": kinds,
        }
    config = config_class(
        vocab_size=tiny.vocab,
        hidden_size=tiny.D,
        intermediate_size=tiny.ffn_width,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.query_heads,
        num_key_value_heads=tiny.kv_heads,
        head_dim=tiny.head_size,
        max_position_embeddings=tiny.context,
        rms_norm_eps=tiny.norm_epsilon,
        rope_parameters=rope,
        tie_word_embeddings=tiny.tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **sizes,
    )
    config._attn_implementation = "eager"
    return config
