"""RoPE scaling of GGUF files in every way that files spell it (case 11), against float64 and llama.cpp."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import synapse_jax as sj
from tests import oracles
from tests.float64_forward import float64_logits
from tests.tiny_cases import CASES, TOKENS
from tests.tiny_rope import TinyRope
from tests.tiny_sessions import assert_close


def keys(*dropped: str, **given: Any):
    """A mutation of `llama.rope` keys; `__` stands for a dot."""

    def mutate(metadata: dict[str, Any], _: dict[str, Any]) -> None:
        for key in dropped:
            del metadata[f"llama.rope.scaling.{key}"]
        metadata.update({f"llama.rope.{key.replace('__', '.')}": value for key, value in given.items()})

    return mutate


# What it is called, the case that it spells otherwise, how, and what it means; None: what the case means.
SPELLINGS: dict[str, tuple[str, Any, TinyRope | None]] = {
    "linear without a type": ("llama-linear", keys("type"), CASES["llama-linear"].rope),
    "linear by the legacy key": (
        "llama-linear",
        keys("factor", scale_linear=4.0),
        CASES["llama-linear"].rope,
    ),
    "linear by the legacy key alone": (
        "llama-linear",
        keys("factor", "type", scale_linear=4.0),
        CASES["llama-linear"].rope,
    ),
    "a factor of 0 before the legacy key": (
        "llama-linear",
        keys(scaling__factor=0.0, scale_linear=4.0),
        None,
    ),
    "none with a factor": ("llama-linear", keys(scaling__type="none"), None),
    "attn_factor of a linear": (
        "llama-linear",
        keys(scaling__attn_factor=1.25),
        TinyRope("linear", 4.0, attention_factor=1.25),
    ),
    "attn_factor alone": (
        "llama-linear",
        keys("type", "factor", scaling__attn_factor=1.25),
        TinyRope("linear", 1.0, attention_factor=1.25),
    ),
    "attn_factor of none": (
        "llama-linear",
        keys("factor", scaling__type="none", scaling__attn_factor=1.25),
        TinyRope("linear", 1.0, attention_factor=1.25),
    ),
    "yarn without an original": ("llama-yarn", keys("original_context_length"), CASES["llama-yarn"].rope),
    "yarn with an original of 0": (
        "llama-yarn",
        keys(scaling__original_context_length=0),
        CASES["llama-yarn"].rope,
    ),
    "yarn by the legacy factor": ("llama-yarn", keys("factor", scale_linear=4.0), CASES["llama-yarn"].rope),
}

# Keys that llama.cpp does not read for these families.
YARN_KEYS: dict[str, tuple[dict[str, float], TinyRope]] = {
    "ext_factor": (dict(ext_factor=0.5), TinyRope("yarn", 4.0, 64, ext_factor=0.5)),
    # Without extrapolation it is linear, and has no magnitude of its own.
    "ext_factor 0": (dict(ext_factor=0.0), TinyRope("linear", 4.0)),
    "ext_factor below 0": (dict(ext_factor=-1.0), TinyRope("yarn", 4.0, 64)),
    "attn_factor": (
        dict(attn_factor=1.2),
        TinyRope("yarn", 4.0, 64, attention_factor=1.2 * TinyRope("yarn", 4.0, 64).magnitude(64)),
    ),
    "log_multiplier": (dict(log_multiplier=0.7), TinyRope("yarn", 4.0, 64, mscale=1.0, mscale_all_dim=0.7)),
    "betas": (dict(beta_fast=8.0, beta_slow=2.0), TinyRope("yarn", 4.0, 64, beta_fast=8.0, beta_slow=2.0)),
    "all": (
        dict(ext_factor=0.75, log_multiplier=0.5, beta_fast=16.0, beta_slow=0.5),
        TinyRope("yarn", 4.0, 64, ext_factor=0.75, log_multiplier=0.5, beta_fast=16.0, beta_slow=0.5),
    ),
}

LOOSER = 2e-4
"""For models whose seeds are quiet under another scaling than the one here."""


def expected_of(name: str, rope: TinyRope | None) -> np.ndarray:
    return float64_logits(dataclasses.replace(CASES[name], rope=rope), TOKENS)


def is_close(logits: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(logits - expected).max() <= LOOSER


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_means_what_it_should(sessions, spelling):
    name, mutate, rope = SPELLINGS[spelling]
    logits = sessions.changed(name, mutate)
    is_close(logits, expected_of(name, rope))
    if rope == CASES[name].rope:
        np.testing.assert_array_equal(logits, sessions.logits(name))
    else:
        assert np.abs(logits - sessions.logits(name)).max() > 0.1


@pytest.mark.parametrize("name", YARN_KEYS)
def test_yarn_keys_equal_float64(sessions, name):
    numbers, rope = YARN_KEYS[name]
    given = {f"scaling__yarn_{key}": value for key, value in numbers.items()}
    logits = sessions.changed("llama-yarn", keys(**given))
    is_close(logits, expected_of("llama-yarn", rope))
    if name == "ext_factor below 0":
        np.testing.assert_array_equal(logits, sessions.logits("llama-yarn"))
    else:
        assert np.abs(logits - sessions.logits("llama-yarn")).max() > 0.1


def test_the_extended_window_changes_no_logit(sessions):
    """The same file, declared with the original window of 64 and with the extended one of 256."""

    def declare(metadata: dict[str, Any], _: dict[str, Any]) -> None:
        metadata["llama.context_length"] = 256

    np.testing.assert_array_equal(sessions.changed("llama-yarn", declare), sessions.logits("llama-yarn"))


def test_local_layers_go_as_far_as_the_extended_window(sessions):
    """gemma3's sliding layers stay unscaled, and have no window of 64 positions of their own."""
    ids = (4 * TOKENS)[:150]
    with sj.load(sessions.path("gemma3-yarn")) as model:
        session = sj.Session(model, sj.RuntimeProfile(context=256, page_size=16), ready=[])
        is_close(session.logits(ids), float64_logits(CASES["gemma3-yarn"], ids))


@pytest.mark.control
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_llama_cpp_reads_every_spelling_so(sessions, spelling):
    try:
        pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    except FileNotFoundError as error:
        pytest.skip(f"llama_cpp: {error}")
    name, mutate, rope = SPELLINGS[spelling]
    is_close(oracles.llama_cpp_logits(sessions.variant(name, mutate), TOKENS), expected_of(name, rope))


@pytest.mark.parametrize("name", ["llama-yarn-256", "llama-longrope", "gemma3-yarn"])
def test_scaled_models_decode_what_they_prefill(sessions, name):
    session = sessions.of(name)
    one = session.score(TOKENS, rows=1)
    whole = session.score(TOKENS)
    assert_close(one.nll, whole.nll)
    np.testing.assert_array_equal(one.greedy, whole.greedy)
