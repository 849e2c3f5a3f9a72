"""Divergences of two distributions against plain formulas in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.evals import compare
from synapse_jax.evals.compare import Divergence, divergence, summarize, worst_positions


def block(seed: int, rows: int, vocab: int, scale: float = 4.0):
    return (np.random.RandomState(seed).randn(rows, vocab) * scale).astype(np.float32)


def probabilities(logits_RV: np.ndarray) -> np.ndarray:
    p = np.exp(logits_RV.astype(np.float64) - logits_RV.max())
    return p / p.sum(-1, keepdims=True)


def test_divergence_is_the_plain_formula():
    a, b, target = block(0, 50, 33), block(1, 50, 33), np.arange(50) % 33
    found = divergence(a, b, target)
    p, q = probabilities(a), probabilities(b)
    np.testing.assert_allclose(found.kl, (p * np.log(p / q)).sum(-1), rtol=1e-10)
    np.testing.assert_allclose(found.nll_a, -np.log(p[np.arange(50), target]), rtol=1e-10)
    np.testing.assert_allclose(found.nll_b, -np.log(q[np.arange(50), target]), rtol=1e-10)
    assert np.array_equal(found.same_top, p.argmax(-1) == q.argmax(-1))
    # It has a direction: A is the reference.
    assert np.abs(divergence(b, a, target).kl - found.kl).max() > 0.1


@given(st.integers(0, 2**31 - 1), st.integers(2, 40), st.floats(0.01, 200))
def test_a_configuration_is_no_distance_from_itself(seed, vocab, scale):
    """Exactly 0, also where probabilities underflow."""
    a = block(seed, 5, vocab, scale)
    found = divergence(a, a.copy(), np.zeros(5, int))
    assert not found.kl.any() and found.same_top.all()
    assert np.array_equal(found.nll_a, found.nll_b)
    summary = summarize(found)
    assert (summary["perplexity_ratio"], summary["perplexity_ratio_error"]) == (1.0, 0.0)
    assert worst_positions(found, 5) == []


def test_a_token_that_only_one_side_rules_out():
    """ln 0 on one side: infinite where A gives it weight, nothing where A gives it none."""
    a = np.array([[0.0, 0.0, -np.inf]], np.float32)
    b = np.array([[0.0, 0.0, 0.0]], np.float32)
    with np.errstate(invalid="ignore"):
        assert divergence(a, b, np.array([0])).kl[0] == pytest.approx(math.log(1.5))
        assert divergence(b, a, np.array([0])).kl[0] == math.inf


def test_parts_change_nothing(monkeypatch):
    a, b, target = block(0, 50, 33), block(1, 50, 33), np.arange(50) % 33
    whole = divergence(a, b, target)
    monkeypatch.setattr(compare, "BLOCK_ELEMENTS", 3 * 33)
    parts = divergence(a, b, target)
    assert np.array_equal(whole.kl, parts.kl) and np.array_equal(whole.nll_b, parts.nll_b)


def test_summary_against_numpy():
    rng = np.random.RandomState(0)
    found = Divergence(rng.rand(500) + 1, rng.rand(500) + 1, rng.rand(500), rng.rand(500) < 0.9)
    summary, change = summarize(found), found.nll_b - found.nll_a
    assert summary["perplexity_ratio"] == pytest.approx(summary["perplexity_b"] / summary["perplexity_a"])
    error = change.std(ddof=1) / math.sqrt(500)
    assert summary["perplexity_ratio_error"] == pytest.approx(error * summary["perplexity_ratio"])
    assert summary["kl"]["percentiles"]["99.9"] == pytest.approx(np.quantile(found.kl, 0.999))
    assert summary["kl"]["percentiles"]["50"] == pytest.approx(np.median(found.kl))
    assert list(summary["kl"]["percentiles"]) == ["99.9", "99", "95", "90", "50", "10", "5", "1", "0.1"]
    delta_p = np.exp(-found.nll_b) - np.exp(-found.nll_a)
    assert summary["delta_p"]["rms"] == pytest.approx(np.sqrt((delta_p**2).mean()))
    assert summary["delta_nll"]["max_abs"] == np.abs(change).max()
    worst = worst_positions(found, 3)
    assert worst == sorted(range(500), key=lambda i: -abs(change[i]))[:3]


def test_one_position_has_no_error():
    found = divergence(block(0, 1, 9), block(1, 1, 9), np.array([3]))
    summary = summarize(found)
    assert summary["perplexity_ratio_error"] is None and summary["kl"]["error"] is None
