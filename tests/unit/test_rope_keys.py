"""RoPE scaling from GGUF keys and tensors: every fallback, and what is refused (case 11)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.model_file import open_model_file
from synapse_jax.spec.rope import RopeProfile, local_profile, rope_profile
from synapse_jax.spec.rope_scaling import RopeScaling
from tests.tiny import write_tiny
from tests.tiny_rope import TinyRope

ONES = np.ones(16, np.float32)
SHORT, LONG = np.full(16, 1.5, np.float32), np.full(16, 3, np.float32)
TENSORS = {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG}


def opened(tmp_path, keys, tensors=None, arch="llama", **sizes):
    """The spec and the warnings of a TINY file with these keys under `ARCH.rope` and these tensors."""

    def mutate(metadata, stored):
        metadata.update({f"{arch}.rope.{key}": value for key, value in keys.items()})
        stored.update(tensors or {})

    path = tmp_path / "tiny.gguf"
    write_tiny(path, arch, mutate=mutate, **sizes)
    with open_model_file(path) as model:
        return model.spec, model.warnings


def scaling(**keys):
    return {f"scaling.{key}": value for key, value in keys.items()}


YARN = scaling(type="yarn", factor=4.0, original_context_length=64)

DECLARED = [
    # Nothing, and what changes nothing.
    ({}, {}, RopeScaling()),
    (scaling(factor=1.0), {}, RopeScaling()),
    (scaling(factor=0.0), {}, RopeScaling()),
    (scaling(type="linear", factor=1.0), {}, RopeScaling()),
    (scaling(type="none", original_context_length=64), {}, RopeScaling(original=64)),
    (scaling(finetuned=True, attn_factor=1.0), {}, RopeScaling()),
    # Linear: with a type, without one, by the legacy key, which counts only where there is no factor.
    (scaling(type="linear", factor=2.0), {}, RopeScaling("linear", 2.0)),
    (scaling(factor=2.0), {}, RopeScaling("linear", 2.0)),
    ({"scale_linear": 2.0}, {}, RopeScaling("linear", 2.0)),
    ({"scale_linear": 2.0, **scaling(type="linear")}, {}, RopeScaling("linear", 2.0)),
    ({"scale_linear": 2.0, **scaling(factor=3.0)}, {}, RopeScaling("linear", 3.0)),
    ({"scale_linear": 2.0, **scaling(factor=0.0)}, {}, RopeScaling()),
    # llama.cpp multiplies by attn_factor whatever the type.
    (scaling(attn_factor=1.5), {}, RopeScaling("linear", 1.0, attn_factor=1.5)),
    (scaling(type="none", attn_factor=1.5), {}, RopeScaling("linear", 1.0, attn_factor=1.5)),
    (scaling(factor=2.0, attn_factor=1.5), {}, RopeScaling("linear", 2.0, attn_factor=1.5)),
    # YaRN.
    (YARN, {}, RopeScaling("yarn", 4.0, 64)),
    (scaling(type="yarn", factor=4.0), {}, RopeScaling("yarn", 4.0)),
    (scaling(type="yarn", factor=4.0, original_context_length=0), {}, RopeScaling("yarn", 4.0)),
    ({"scale_linear": 4.0, **scaling(type="yarn")}, {}, RopeScaling("yarn", 4.0)),
    (YARN | scaling(attn_factor=1.5), {}, RopeScaling("yarn", 4.0, 64, attn_factor=1.5)),
    (YARN | scaling(yarn_attn_factor=1.5), {}, RopeScaling("yarn", 4.0, 64, attn_factor=1.5)),
    (YARN | scaling(attn_factor=2.0, yarn_attn_factor=1.5), {}, RopeScaling("yarn", 4.0, 64, attn_factor=3)),
    (YARN | scaling(attn_factor=0.0, yarn_attn_factor=0.0), {}, RopeScaling("yarn", 4.0, 64)),
    (YARN | scaling(yarn_beta_fast=16.0), {}, RopeScaling("yarn", 4.0, 64, beta_fast=16.0)),
    (YARN | scaling(yarn_beta_slow=2.0), {}, RopeScaling("yarn", 4.0, 64, beta_slow=2.0)),
    (YARN | scaling(yarn_beta_fast=0.0, yarn_beta_slow=0.0), {}, RopeScaling("yarn", 4.0, 64)),
    (YARN | scaling(yarn_ext_factor=0.5), {}, RopeScaling("yarn", 4.0, 64, ext_factor=0.5)),
    (YARN | scaling(yarn_ext_factor=0.0), {}, RopeScaling("yarn", 4.0, 64, ext_factor=0.0)),
    (YARN | scaling(yarn_ext_factor=-1.0), {}, RopeScaling("yarn", 4.0, 64)),
    (YARN | scaling(yarn_log_multiplier=0.5), {}, RopeScaling("yarn", 4.0, 64, log_multiplier=0.5)),
    # Divisors.
    ({}, {"rope_freqs.weight": ONES}, RopeScaling("llama3", divisors=(1.0,) * 16)),
    (
        scaling(type="longrope", original_context_length=64, attn_factor=1.25),
        TENSORS,
        RopeScaling(
            "longrope", 1.0, 64, magnitude=1.25, short_divisors=(1.5,) * 16, long_divisors=(3.0,) * 16
        ),
    ),
    # Converters of Phi-3 write no type, and old ones no magnitude.
    (
        scaling(original_context_length=64),
        TENSORS,
        RopeScaling("longrope", 1.0, 64, short_divisors=(1.5,) * 16, long_divisors=(3.0,) * 16),
    ),
]  # fmt: skip


@pytest.mark.parametrize("keys, tensors, expected", DECLARED, ids=lambda value: str(value)[:60])
def test_what_a_file_declares(tmp_path, keys, tensors, expected):
    spec, warnings = opened(tmp_path, keys, tensors)
    assert spec.rope_scaling == expected
    assert warnings == ()
    # The tables can be made.
    assert isinstance(rope_profile(spec, None, None), RopeProfile)


@pytest.mark.parametrize(
    "keys, words",
    [
        (scaling(type="none", factor=4.0), ["scaling.factor is 4.0", "'none'", "not scaled"]),
        ({"scale_linear": 2.0, **scaling(type="none")}, ["scale_linear is 2.0", "'none'"]),
        (scaling(yarn_beta_fast=16.0), ["yarn_beta_fast", "not used", "'none'"]),
        (scaling(factor=2.0, yarn_ext_factor=1.0), ["yarn_ext_factor", "not used", "'linear'"]),
    ],
)
def test_what_a_file_switches_off_is_noted(tmp_path, keys, words):
    spec, warnings = opened(tmp_path, keys)
    assert len(warnings) == 1 and all(word in warnings[0] for word in words), warnings
    assert spec.rope_scaling.type == (
        "linear" if "scaling.factor" in keys and "scaling.type" not in keys else "none"
    )


@pytest.mark.parametrize(
    "keys, tensors, words",
    [
        (scaling(type="dynamic", factor=2.0), {}, ["rope.scaling.type", "'dynamic'", "yarn"]),
        (scaling(factor=0.5), {}, ["rope.scaling", "factor 0.5"]),
        (scaling(factor=math.inf), {}, ["rope.scaling.factor", "inf"]),
        (scaling(factor=2), {}, ["rope.scaling.factor", "uint32"]),
        (scaling(attn_factor=-1.0), {}, ["attn_factor -1.0"]),
        (scaling(type="yarn", factor=4.0, yarn_beta_fast=0.5), {}, ["beta_fast 0.5", "beta_slow 1.0"]),
        (scaling(type="yarn", factor=4.0, yarn_ext_factor=2.0), {}, ["ext_factor 2.0"]),
        (scaling(type="yarn", factor=4.0, yarn_log_multiplier=-0.5), {}, ["log_multiplier -0.5"]),
        # Neither the original 64 nor 4 times that.
        (YARN, {}, ["context length 255", "original 64", "256"]),
        (scaling(type="longrope"), {}, ["'longrope'", "rope_factors_short.weight"]),
        ({}, {"rope_factors_long.weight": LONG}, ["'longrope'", "rope_factors_short.weight"]),
        (scaling(type="linear", factor=2.0), TENSORS, ["'linear'", "rope_factors_long.weight"]),
        (scaling(factor=2.0), TENSORS, ["scaling.factor", "2.0", "longrope"]),
        (scaling(original_context_length=1), TENSORS, ["longrope", "original length 1"]),
        (scaling(factor=2.0), {"rope_freqs.weight": ONES}, ["rope_freqs.weight", "'linear'"]),
        (scaling(original_context_length=64), TENSORS | {"rope_freqs.weight": ONES}, ["'longrope'"]),
        ({}, {"rope_freqs.weight": ONES[:15]}, ["rope_freqs.weight", "[15]", "[16]"]),
        ({}, {"rope_freqs.weight": 0 * ONES}, ["llama.rope.scaling", "divisors"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_refused(tmp_path, keys, tensors, words):
    with pytest.raises(InputError) as caught:
        opened(tmp_path, keys, tensors, context=255)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'tiny.gguf'}: ") and message.isprintable()
    assert all(word in message for word in words), message


@pytest.mark.parametrize("context", [64, 256])
def test_yarn_may_declare_the_original_or_the_extended_window(tmp_path, context):
    spec, _ = opened(tmp_path, YARN, context=context)
    profile = rope_profile(spec, None, None)
    assert (profile.original, profile.context_limit) == (64, 256)


def test_a_missing_original_is_the_context_length(tmp_path):
    spec, _ = opened(tmp_path, scaling(type="yarn", factor=4.0), context=64)
    profile = rope_profile(spec, None, None)
    assert (profile.original, profile.context_limit) == (64, 256)
    assert profile == rope_profile(opened(tmp_path, YARN, context=64)[0], None, None)


def test_longrope_chooses_by_the_context_and_has_its_magnitude(tmp_path):
    spec, _ = opened(tmp_path, scaling(original_context_length=64), TENSORS, "phi3")
    assert rope_profile(spec, None, 64).divisors == (1.5,) * 16
    assert rope_profile(spec, None, 65).divisors == rope_profile(spec, None, None).divisors == (3.0,) * 16
    # sqrt(1 + ln(256 / 64) / ln 64), where the file does not give it.
    assert rope_profile(spec, None, 64).magnitude == pytest.approx(math.sqrt(4 / 3))
    given, _ = opened(tmp_path, scaling(original_context_length=64, attn_factor=1.0), TENSORS, "phi3")
    assert rope_profile(given, None, 64).magnitude == 1.0


def test_gemma3_scales_full_layers_only(tmp_path):
    keys = scaling(type="linear", factor=8.0)
    spec, _ = opened(tmp_path, keys, arch="gemma3", window=8, layers=6, rope_base=1e6)
    assert (rope_profile(spec, None, None).type, rope_profile(spec, None, None).base) == ("linear", 1e6)
    assert (local_profile(spec).type, local_profile(spec).base) == ("none", 1e4)


@pytest.mark.parametrize("rope", [
    TinyRope("linear", 4.0), TinyRope("yarn", 4.0, 64), TinyRope("yarn", 4.0, 64, ext_factor=0.25),
    TinyRope("yarn", 4.0, 64, log_multiplier=0.5), TinyRope("yarn", 4.0, 64, beta_fast=8.0, beta_slow=2.0),
    TinyRope("yarn", 4.0, 64, attention_factor=1.7), TinyRope("llama3", 8.0, 32),
    TinyRope("longrope", original=32, short=(1.0,) * 16, long=tuple(1.0 + i for i in range(16))),
], ids=str)  # fmt: skip
def test_tables_are_those_of_an_independent_evaluation(tmp_path, rope):
    from synapse_jax.spec.rope_table import scaled_frequencies

    path = tmp_path / "tiny.gguf"
    write_tiny(path, rope=rope, context=64)
    with open_model_file(path) as model:
        profile = rope_profile(model.spec, None, 64)
    # What the file holds in float32 is 1e-7 off.
    assert np.allclose(scaled_frequencies(profile), rope.frequencies(1e4, 32, 64), rtol=2e-7, atol=0)
    assert profile.magnitude == pytest.approx(rope.magnitude(64), rel=2e-7)
    if rope.type == "yarn" and rope.attention_factor is None:
        other = dataclasses.replace(rope, ext_factor=0.9 * rope.ext_factor)
        assert not np.allclose(scaled_frequencies(profile), other.frequencies(1e4, 32, 64), rtol=1e-3)
