"""Folders whose config.json or tensors must be refused: exit code 2, one line that names file and field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.folders import write_folder
from tests.tiny import Tiny
from tests.tiny_rope import TinyRope

YARN = TinyRope("yarn", 4.0, 64)


def refusal(synapse, folder: Path) -> str:
    return synapse("generate", "--model", folder, "--tokens", "1 2 3", "--max-new-tokens", 1).refusal


def fields(**values: Any) -> Callable[[dict, dict], None]:
    """Sets fields of config.json."""
    return lambda config, _: config.update(values)


def drop(*names: str) -> Callable[[dict, dict], None]:
    """Takes fields or tensors out."""

    def change(config: dict, tensors: dict) -> None:
        for name in names:
            (config if name in config else tensors).pop(name)

    return change


def rope(**values: Any) -> Callable[[dict, dict], None]:
    """Sets fields of rope_parameters."""
    return lambda config, _: config["rope_parameters"].update(values)


def tensor(name: str, array: np.ndarray) -> Callable[[dict, dict], None]:
    """Puts a tensor in."""
    return lambda _, tensors: tensors.update({name: array})


ZERO, ONE = np.zeros(64, np.float32), np.ones(64, np.float32)
Q = "model.layers.1.self_attn.q_proj.weight"

# What is changed in a model, and words of the refusal.
LLAMA: dict[str, tuple[Callable[[dict, dict], None], str]] = {
    "no model_type": (drop("model_type"), "model_type: is missing"),
    "unknown model_type": (
        fields(model_type="mamba2"), "model_type: is 'mamba2', supported: gemma3_text, llama",
    ),
    "multimodal": (fields(model_type="gemma3"), "model_type: is 'gemma3'"),
    "model_type of another kind": (fields(model_type=["llama"]), "model_type: is"),
    "another class": (
        fields(architectures=["LlamaForSequenceClassification"]), "architectures: is 'LlamaForSequ",
    ),
    "classes of another kind": (fields(architectures=7), "architectures: is 7"),
    "no width": (drop("hidden_size"), "hidden_size: is missing"),
    "null layers": (fields(num_hidden_layers=None), "num_hidden_layers: is null"),
    "text for heads": (
        fields(num_attention_heads="4"), "num_attention_heads: is '4', not a positive integer",
    ),
    "zero heads": (fields(num_attention_heads=0), "num_attention_heads: is 0"),
    "true heads": (fields(num_attention_heads=True), "num_attention_heads: is True"),
    "1e400 layers": (fields(num_hidden_layers=10**400), "num_hidden_layers: is of 1329 bits"),
    "a million layers": (
        fields(num_hidden_layers=10**6), "num_hidden_layers: is 1000000, at most 65536",
    ),
    "a thousand layers": (fields(num_hidden_layers=1000), "is 1000, but there are only 20 tensors"),
    "heads of 2^30": (fields(head_dim=1 << 30), "head_dim: is 1073741824, at most 65536"),
    "more layers": (
        fields(num_hidden_layers=3), "tensor 'model.layers.2.input_layernorm.weight': is missing",
    ),
    "fewer layers": (fields(num_hidden_layers=1), "is of layer 1, but config.json: num_hidden_layers is 1"),
    "key heads that do not divide": (
        fields(num_key_value_heads=3), "kv_heads 3 does not divide query_heads 4",
    ),
    "width without head_dim": (
        lambda config, _: config.update(head_dim=None, hidden_size=63), "head_dim: is missing, and 4 heads",
    ),
    "negative epsilon": (fields(rms_norm_eps=-1e-6), "norm_epsilon is -9.99999"),
    "infinite epsilon": (fields(rms_norm_eps=float("inf")), "rms_norm_eps: is inf"),
    "gelu": (fields(hidden_act="gelu"), "hidden_act: is 'gelu', not silu"),
    "quantized": (
        fields(quantization_config={"quant_method": "gptq", "bits": 4}),
        "quantization_config: is an object with quant_method 'gptq'",
    ),
    "mlp_bias": (fields(mlp_bias=True), "mlp_bias: is True"),
    "attention_bias without biases": (fields(attention_bias=True), "self_attn.q_proj.bias': is missing"),
    "attention_bias of another kind": (fields(attention_bias=1), "attention_bias: is 1, not true or false"),
    "window": (fields(sliding_window=16), "sliding_window: is 16, which this model does not have"),
    "sliding layers": (fields(layer_types=["sliding_attention"] * 2), "layer_types: has sliding_attention"),
    "other layers": (fields(layer_types=["linear_attention"] * 2), "layer_types: has 'linear_attention'"),
    "too few layer_types": (fields(layer_types=["full_attention"]), "layer_types: is an array of 1 values"),
    "softcap": (fields(final_logit_softcapping=30.0), "final_logit_softcapping: is 30.0"),
    "experts": (fields(num_local_experts=8), "num_local_experts: is 8"),
    "multiplier": (fields(residual_multiplier=0.22), "residual_multiplier: is 0.22"),
    "query scale": (fields(query_pre_attn_scalar=64), "query_pre_attn_scalar: is 64"),
    "local base": (fields(rope_local_base_freq=1e4), "rope_local_base_freq: is 10000.0"),
    "partial rotary": (fields(partial_rotary_factor=0.5), "partial_rotary_factor: is 0.5"),
    "partial rotary inside": (rope(partial_rotary_factor=0.5), "partial_rotary_factor: is 0.5"),
    "dynamic": (
        rope(rope_type="dynamic", factor=2.0), "rope_parameters.rope_type: is 'dynamic', which is not",
    ),
    "two names of the type": (
        rope(type="linear"), "rope_parameters.rope_type: is 'default', but type is 'linear'",
    ),
    "factor without a type": (
        rope(factor=4.0), "rope_parameters.factor: is there, which RoPE of type 'default'",
    ),
    "linear without factor": (rope(rope_type="linear"), "rope_parameters.factor: is missing"),
    "factor below 1": (rope(rope_type="linear", factor=0.5), "factor 0.5 is below 1"),
    "factor as text": (rope(rope_type="linear", factor="4"), "rope_parameters.factor: is '4', not a number"),
    "another type's field": (
        rope(rope_type="linear", factor=2.0, beta_fast=32), "rope_parameters.beta_fast: is there, which RoPE",
    ),
    "rope is a list": (fields(rope_parameters=[1]), "rope_parameters: is an array"),
    "two bases": (
        fields(rope_theta=5e5), "rope_parameters.rope_theta: is 10000.0, but rope_theta is 500000.0",
    ),
    "base 0": (rope(rope_theta=0), "rope_parameters.rope_theta: is 0.0, not above 0"),
    "two scalings": (
        fields(rope_scaling={"type": "linear", "factor": 2.0}), "rope_scaling: is there, and rope_par",
    ),
    "nested rope": (
        fields(rope_parameters={"full_attention": {"rope_type": "default"},
        "sliding_attention": {"rope_theta": 1.0}}),
        "layers of this model all rotate alike",
    ),
    "yarn whose window does not fit": (
        rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=100),
        "its context length 256 is neither the original 100 nor 400",
    ),
    "two originals": (
        lambda config, _: (
            config.update(original_max_position_embeddings=32),
            config["rope_parameters"].update(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=64
            ),
        ),
        "original_max_position_embeddings: is 64, but beside it it is 32",
    ),
    "yarn betas": (
        rope(rope_type="yarn", factor=4.0, beta_fast=1.0, beta_slow=32.0),
        "beta_fast 1.0 is not above beta_slow",
    ),
    "llama3 without its factors": (rope(rope_type="llama3", factor=8.0), "low_freq_factor: is missing"),
    "llama3 in the wrong order": (
        rope(rope_type="llama3", factor=8.0, low_freq_factor=4.0, high_freq_factor=1.0),
        "low_freq_factor 4.0",
    ),
    "longrope of the wrong length": (
        rope(rope_type="longrope", short_factor=[1.0] * 15, long_factor=[1.0] * 16),
        "short_factor: has 15 numbers",
    ),
    "longrope with text": (
        rope(rope_type="longrope", short_factor=[1.0] * 15 + ["1"], long_factor=[1.0] * 16),
        "rope_parameters.short_factor[15]: is '1', not a number",
    ),
    "longrope without original": (
        rope(rope_type="longrope", short_factor=[1.0] * 16, long_factor=[1.0] * 16),
        "original_max_position_embeddings: is missing",
    ),
    "no head, not tied": (
        fields(tie_word_embeddings=False), "tensor 'lm_head.weight': is missing, and config.json: tie",
    ),
    "tie flag of another kind": (fields(tie_word_embeddings="yes"), "tie_word_embeddings: is 'yes'"),
    "missing tensor": (drop(Q), f"tensor '{Q}': is missing (19 tensors are there)"),
    "wrong shape": (
        tensor(Q, np.zeros((128, 32), np.float32)),
        f"tensor '{Q}': has shape [128, 32], config.json asks for",
    ),
    "vocabulary of another size": (
        fields(vocab_size=300), "tensor 'model.embed_tokens.weight': has shape [288, 64]",
    ),
    "a bias too many": (
        tensor("model.layers.0.self_attn.q_proj.bias", ONE), "q_proj.bias': changes the numbers",
    ),
    "a norm too many": (
        tensor("model.layers.0.self_attn.q_norm.weight", ZERO), "q_norm.weight': changes the numbers",
    ),
    "a scale": (tensor("model.layers.0.mlp.up_proj.weight_scale", ONE), "weight_scale': changes the numbers"),
}  # fmt: skip


@pytest.mark.parametrize("what", LLAMA)
def test_a_bad_llama_is_refused(synapse, tmp_path, what):
    mutate, words = LLAMA[what]
    write_folder(tmp_path, Tiny(), mutate=mutate)
    message = refusal(synapse, tmp_path)
    assert f"{tmp_path}/" in message and words in message, message


OTHERS: dict[str, tuple[Tiny, Callable[[dict, dict], None], str]] = {
    "mistral, other layers": (
        Tiny(window=8), fields(layer_types=["full_attention"] * 2),
        "layer_types: does not fit sliding_window 8",
    ),
    "qwen2, layers without use": (
        Tiny("qwen2"), fields(layer_types=["sliding_attention"] * 2),
        "layer_types: has sliding_attention, but use_sl",
    ),
    "qwen2, window as text": (
        Tiny("qwen2"), fields(use_sliding_window=True, sliding_window="8"), "sliding_window: is '8'",
    ),
    "qwen2, no first layer": (
        Tiny("qwen2"), fields(use_sliding_window=True, max_window_layers=None), "max_window_layers: is null",
    ),
    "qwen2, no bias": (
        Tiny("qwen2"), drop("model.layers.0.self_attn.k_proj.bias"), "k_proj.bias': is missing",
    ),
    "qwen3, bias": (Tiny("qwen3"), fields(attention_bias=True), "attention_bias: is True"),
    "qwen3, no head_dim": (Tiny("qwen3"), drop("head_dim"), "head_dim: is missing"),
    "gemma3, softcap": (
        Tiny("gemma3", window=8), fields(attn_logit_softcapping=50.0), "attn_logit_softcapping: is 50.0",
    ),
    "gemma3, plain gelu": (
        Tiny("gemma3", window=8), fields(hidden_activation="gelu"), "hidden_activation: is 'gelu'",
    ),
    "gemma3, both ways": (
        Tiny("gemma3", window=8), fields(use_bidirectional_attention=True),
        "use_bidirectional_attention: is True",
    ),
    "gemma3, no window": (Tiny("gemma3", window=8), fields(sliding_window=None), "sliding_window: is null"),
    "gemma3, no query scale": (
        Tiny("gemma3", window=8), drop("query_pre_attn_scalar"), "query_pre_attn_scalar: is mi",
    ),
    "gemma3, scaled sliding layers": (
        Tiny("gemma3", window=8),
        lambda config, _: config["rope_parameters"].update(
            sliding_attention={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
        ),
        "rope_parameters.sliding_attention.rope_type: scales sliding layers",
    ),
    "phi3, yarn": (
        Tiny("phi3", rope=YARN, context=64), lambda *_: None, "rope_parameters.short_factor: is missing",
    ),
    "phi3, fused rows": (
        Tiny("phi3", tied=False),
        tensor("model.layers.0.self_attn.qkv_proj.weight", np.zeros((255, 128), np.float32)),
        "qkv_proj.weight': has shape [255, 128], config.json asks for [256, 128]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_a_bad_model_of_another_family_is_refused(synapse, tmp_path, what):
    tiny, mutate, words = OTHERS[what]
    write_folder(tmp_path, tiny, mutate=mutate)
    message = refusal(synapse, tmp_path)
    assert f"{tmp_path}/" in message and words in message, message
