"""Scaled rotary tables: formulas, windows, what is accepted and what contradicts a file."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.spec.rope import RopeProfile, rope_profile, unscaled_profile
from synapse_jax.spec.rope_scaling import RopeScaling, llama3_divisors, parse_rope_scaling
from synapse_jax.spec.rope_table import rope_rows, scaled_frequencies, yarn_range
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.tiny import Tiny
from tests.tiny_model import tiny_spec

SPEC = dataclasses.replace(
    tiny_spec(Tiny()), rope_base=1e6, head_size=128, rotary_size=128, trained_context=32768
)
VECTORS = [
    (128, 1e6, 32768, 4, (23, 40), 1.138629),
    (64, 1e5, 8192, 4, (10, 20), 1.138629),
    (64, 1e6, 32768, 4, (11, 20), 1.138629),
    (128, 1e4, 4096, 8, (20, 46), 1.207944),
    (256, 1e6, 32768, 4, (47, 80), 1.138629),
]
"""(d, base, original, factor, [low, high], m), from the description of the formula."""


def yarn(d: int, base: float, original: int, factor: float, **keys) -> RopeProfile:
    spec = dataclasses.replace(SPEC, head_size=d, rotary_size=d, rope_base=base, trained_context=original)
    return rope_profile(spec, RopeScaling("yarn", factor=factor, original=original, **keys), None)


def independent_angles(positions, d, base, original, f, *, fast=32.0, slow=1.0, e=1.0) -> np.ndarray:
    """ggml's YaRN written anew: extended precision, all dimensions at once, logarithms of another base."""
    i = np.arange(d // 2, dtype=np.longdouble)
    theta = np.longdouble(base) ** (-2 * i / d)

    def corr(rotations):
        return (
            d
            * (np.log2(np.longdouble(original)) - np.log2(2 * np.pi * np.longdouble(rotations)))
            / (2 * np.log2(np.longdouble(base)))
        )

    low, high = max(0, np.floor(corr(fast))), min(d - 1, np.ceil(corr(slow)))
    ramp = e * (1 - np.clip((i - low) / max(0.001, high - low), 0, 1))
    return np.asarray(positions, np.longdouble)[:, None] * ((theta / f) * (1 - ramp) + theta * ramp)


@pytest.mark.parametrize(("d", "base", "original", "factor", "bounds", "m"), VECTORS)
def test_yarn_frequencies_match_fp64_formula(d, base, original, factor, bounds, m):
    profile = yarn(d, base, original, factor)
    assert yarn_range(profile) == bounds
    assert profile.magnitude == pytest.approx(m, abs=5e-7)
    positions = np.unique(np.geomspace(1, original * factor, 500).astype(int)) - 1
    cos, sin = rope_rows(profile, positions)
    angles = independent_angles(positions, d, base, original, factor)
    m = 1 + np.log(np.longdouble(factor)) / 10
    # Half a unit in the last place of a float32 below 2, and float64 angles up to 131,071.
    assert np.abs(cos - m * np.cos(angles)).max() < 6.2e-8 * float(m)
    assert np.abs(sin - m * np.sin(angles)).max() < 6.2e-8 * float(m)


def test_yarn_keys_change_what_they_name():
    base = yarn(64, 1e5, 8192, 4)
    theta = scaled_frequencies(base)
    for keys, same_theta, m in [
        ({"attn_factor": 1.3}, True, 1.3 * base.magnitude),
        ({"magnitude": 1.7}, True, 1.7),
        ({"log_multiplier": 0.5}, True, base.magnitude / (1 + 0.05 * np.log(4))),
        ({"beta_fast": 16.0}, False, base.magnitude),
        ({"beta_slow": 2.0}, False, base.magnitude),
        ({"ext_factor": 0.5}, False, base.magnitude),
        ({"truncate": False}, False, base.magnitude),
    ]:
        changed = yarn(64, 1e5, 8192, 4, **keys)
        assert np.array_equal(scaled_frequencies(changed), theta) == same_theta, keys
        assert changed.magnitude == pytest.approx(m), keys
        assert changed != base


def test_yarn_keeps_fast_dimensions_and_stretches_slow_ones():
    profile = yarn(128, 1e6, 32768, 4)
    ratio = scaled_frequencies(profile) * 1e6 ** (np.arange(64) / 64)
    assert np.allclose(ratio[:24], 1) and np.allclose(ratio[40:], 1 / 4)
    assert (np.diff(ratio[23:41]) < 0).all()


def test_linear_divides_every_frequency():
    profile = rope_profile(SPEC, RopeScaling("linear", factor=2.5), None)
    assert np.allclose(scaled_frequencies(profile) * 2.5, 1e6 ** (-np.arange(64) / 64), rtol=1e-15)
    assert (profile.context_limit, profile.magnitude) == (81920, 1.0)


def test_llama3_divides_by_wavelength():
    divisors = llama3_divisors(500000.0, 128, 8.0, 1.0, 4.0, 8192)
    wavelength = 2 * np.pi * 500000.0 ** (np.arange(64) / 64)
    divisors = np.array(divisors)
    assert (divisors[wavelength < 8192 / 4] == 1).all() and (divisors[wavelength > 8192] == 8).all()
    between = (wavelength > 8192 / 4) & (wavelength < 8192)
    assert between.sum() > 3 and ((divisors[between] > 1) & (divisors[between] < 8)).all()


def test_longrope_chooses_by_the_context():
    short, long = tuple(np.linspace(1, 2, 64)), tuple(np.linspace(1, 30, 64))
    spec = dataclasses.replace(
        SPEC,
        rope_scaling=RopeScaling(
            "longrope", factor=8.0, original=4096, short_divisors=short, long_divisors=long
        ),
    )
    for context, divisors in ((4096, short), (4097, long), (None, long)):
        assert rope_profile(spec, None, context).divisors == divisors
    assert rope_profile(spec, None, None).magnitude == pytest.approx(np.sqrt(1 + np.log(8) / np.log(4096)))
    given = dataclasses.replace(spec, rope_scaling=dataclasses.replace(spec.rope_scaling, magnitude=1.19))
    assert rope_profile(given, None, None).magnitude == 1.19


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("yarn:4:32768", 131072),
        ("yarn:2.3:1000", 2300),
        ("yarn:1.5:1001", 1501),
        ("linear:1.1:", None),
        ("none", 32768),
    ],
)
def test_the_window_is_floor_of_factor_times_original(text, limit):
    if limit is None:
        with pytest.raises(InputError):
            parse_rope_scaling(text)
        return
    profile = RuntimeProfile(rope=parse_rope_scaling(text))
    assert resolve(profile, SPEC).context == limit
    assert resolve(dataclasses.replace(profile, context=limit), SPEC).context == limit
    with pytest.raises(
        InputError, match=rf"context {limit + 1} is above the {limit} positions.*32768|{limit}"
    ):
        resolve(dataclasses.replace(profile, context=limit + 1), SPEC)


def test_parsed_text_prints_as_given():
    for text in (
        "none",
        "linear:2",
        "yarn:4:8192",
        "yarn:4:8192:beta_fast=16:attn_factor=1.3:truncate=false",
    ):
        assert str(parse_rope_scaling(text)) == text
    assert parse_rope_scaling("yarn:4:8192:attention_factor=1.2").magnitude == 1.2
    scaled = parse_rope_scaling("yarn:40:4096:mscale=1:mscale_all_dim=0.8")
    assert scaled.magnitude == pytest.approx((1 + 0.1 * np.log(40)) / (1 + 0.08 * np.log(40)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not of the form"),
        ("ntk:2", "not of the form"),
        ("linear", "not of the form"),
        ("linear:2:8192", "not of the form"),
        ("yarn:4", "not of the form"),
        ("yarn:4:8192:fast", "not of the form"),
        ("linear:x", "factor 'x' is not a number"),
        ("linear:nan", "factor 'nan' is not a number"),
        ("linear:0.5", "factor 0.5 is below 1"),
        ("yarn:4:8k", "'8k' is not a whole number"),
        ("yarn:4:-1", "'-1' is not a whole number"),
        ("yarn:4:0", "original length 0 is below 1"),
        ("yarn:4:8192:speed=2", "no key 'speed'"),
        ("yarn:4:8192:beta_fast=1:beta_fast=2", "beta_fast is given twice"),
        ("yarn:4:8192:beta_fast=0.5", "beta_fast 0.5 is not above beta_slow 1"),
        ("yarn:4:8192:ext_factor=2", "ext_factor 2.0 is not from 0 to 1"),
        ("yarn:4:8192:mscale=1", "come together"),
        ("yarn:4:8192:truncate=maybe", "true or false"),
        ("linear:2:attn_factor=2", "linear takes no keys"),
    ],
)
def test_bad_scaling_texts_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_rope_scaling(text)


def test_contradicting_scaling_fails():
    declared = dataclasses.replace(SPEC, rope_scaling=RopeScaling("yarn", factor=4.0, original=32768))
    own = rope_profile(declared, None, None)
    assert own == rope_profile(declared, parse_rope_scaling("yarn:4:32768"), None)
    for text in ("none", "linear:4", "yarn:2:32768", "yarn:4:16384", "yarn:4:32768:attn_factor=2"):
        with pytest.raises(InputError) as caught:
            rope_profile(declared, parse_rope_scaling(text), None)
        assert text in str(caught.value) and "yarn:4:32768" in str(caught.value)
    with pytest.raises(InputError, match="contradicts"):
        resolve(RuntimeProfile(rope=unscaled_profile(declared)), declared)
    # A file without scaling takes any.
    assert rope_profile(SPEC, parse_rope_scaling("none"), None) == unscaled_profile(SPEC)


def test_an_original_above_the_trained_window_is_refused():
    with pytest.raises(InputError, match="original length 32769 is above the 32768"):
        rope_profile(SPEC, parse_rope_scaling("yarn:2:32769"), None)


@pytest.mark.parametrize(("trained", "fits"), [(8192, True), (32768, True), (8193, False), (40960, False)])
def test_a_files_yarn_must_agree_with_its_context_length(trained, fits):
    spec = dataclasses.replace(
        SPEC, trained_context=trained, rope_scaling=RopeScaling("yarn", factor=4.0, original=8192)
    )
    if fits:
        assert rope_profile(spec, None, None).context_limit == 32768
        return
    with pytest.raises(InputError, match=f"{trained} is neither the original 8192 nor 32768"):
        rope_profile(spec, None, None)
