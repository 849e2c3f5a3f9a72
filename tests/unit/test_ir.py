"""The Model IR: shapes, weights, text."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from synapse_jax.ir.build import ShapeError, build
from synapse_jax.ir.text import ir_text, profile_text
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope_scaling import RopeScaling
from synapse_jax.spec.runtime import RuntimeProfile, resolve

SPEC = ModelSpec(
    arch="qwen2", layers=3, width=64, ffn_width=96, query_heads=4, kv_heads=2, head_size=24, rotary_size=16,
    vocab_size=100, trained_context=256, norm_epsilon=1e-5, rope_base=1e4, rope_scaling=RopeScaling(),
    local_rope_base=None, qkv_bias=True, tied_output=False,
)  # fmt: skip


def ir_of(spec: ModelSpec = SPEC, **profile):
    return build(spec, resolve(RuntimeProfile(**profile), spec))


def test_weights_cover_the_model_once():
    weights = {weight.name: weight for weight in ir_of().weights()}
    assert weights["layers.2.qkv"].shape == (4 * 24 + 2 * 2 * 24, 64)
    assert weights["layers.2.qkv"].parts == ("layers.2.q", "layers.2.k", "layers.2.v")
    assert weights["layers.0.qkv_bias"].parts == ("layers.0.q_bias", "layers.0.k_bias", "layers.0.v_bias")
    assert weights["layers.1.gate_up"].shape == (192, 64)
    assert weights["head"].shape == weights["embed"].shape == (100, 64)
    assert len(weights) == 3 + 3 * 7
    tied = [weight.name for weight in ir_of(dataclasses.replace(SPEC, tied_output=True)).weights()]
    assert tied.count("embed") == 1 and "head" not in tied


def test_text_is_stable_and_tells_models_apart():
    assert ir_text(ir_of()) == ir_text(ir_of())
    assert ir_text(ir_of()).count("rms_norm") == 3  # equal layers are printed once
    for change in (
        {"head_size": 32},
        {"rotary_size": 8},
        {"qkv_bias": False},
        {"norm_epsilon": 1e-6},
        {"layers": 2},
    ):
        assert ir_text(ir_of(dataclasses.replace(SPEC, **change))) != ir_text(ir_of())


@pytest.mark.parametrize("local_base", [None, 1e3])
def test_all_angles_end_with_the_extended_window(local_base):
    ir = ir_of(dataclasses.replace(SPEC, local_rope_base=local_base), rope=RopeScaling("yarn", 1.5, 200))
    assert ir.context_limit == 300 and len(ir.rope_tables) == 1 + (local_base is not None)
    cos, sin = ir.angle_rows(np.array([0, 256, 299]))
    assert cos.shape == sin.shape == (len(ir.rope_tables), 3, 8) and cos.dtype == sin.dtype == np.float32
    assert profile_text(ir).count("limit=300") == len(ir.rope_tables)
    for outside in (-1, 300):
        with pytest.raises(IndexError, match="300 positions"):
            ir.angle_rows(np.array([0, outside]))


def test_profile_text_names_every_choice():
    text = profile_text(ir_of(context=100, precision="bf16", page_size=64))
    for part in (
        "rope table=0 none base=10000.0",
        "limit=256",
        "attention dense",
        "precision bf16",
        "kv_dtype f32",
        "page_size 64",
    ):
        assert part in text


def test_a_builder_that_does_not_fit_is_found():
    from synapse_jax.ir.build import _Builder
    from synapse_jax.ir.nodes import Value

    b = _Builder()
    x = Value("x", ("T", 10), "f32")
    with pytest.raises(ShapeError, match="holds no heads"):
        b.heads(x, 1, 2, 4, "q")
    with pytest.raises(ShapeError, match="differ"):
        b.add(x, Value("y", ("T", 11), "f32"), "z")


def test_an_unresolved_profile_is_refused():
    with pytest.raises(ValueError, match="not resolved"):
        build(SPEC, RuntimeProfile())
