"""Student's t against printed tables, and intervals against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from synapse_jax.evals.interval import mean_interval, student_t

TABLE = {
    1: 12.7062047,
    2: 4.3026527,
    3: 3.1824463,
    4: 2.7764451,
    5: 2.5705818,
    10: 2.2281389,
    15: 2.1314495,
    30: 2.0422725,
    31: 2.0395134,
    1000: 1.9623391,
}
"""Two-sided 95 % quantiles by degrees of freedom, as tables print them."""


@pytest.mark.parametrize(("freedom", "t"), TABLE.items())
def test_quantiles_are_those_of_the_tables(freedom, t):
    assert student_t(0.95, freedom) == pytest.approx(t, abs=1e-7)


def test_other_confidences():
    assert student_t(0.99, 15) == pytest.approx(2.9467129, abs=1e-7)
    assert student_t(0.5, 1) == pytest.approx(1, abs=1e-12)  # Cauchy's quartile
    for confidence, freedom in ((0, 3), (1, 3), (0.95, 0)):
        with pytest.raises(ValueError):
            student_t(confidence, freedom)


def test_interval_is_mean_and_t_standard_errors():
    found = mean_interval([1.0, 2.0, 4.0])
    half = TABLE[2] * math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2) / math.sqrt(3)
    assert (found.mean, found.n) == (pytest.approx(7 / 3), 3)
    assert (found.low, found.high) == (pytest.approx(7 / 3 - half), pytest.approx(7 / 3 + half))
    assert mean_interval([2.5]) == type(found)(2.5, None, None, 1)


def test_intervals_cover_the_mean_as_often_as_they_say():
    """Of 2,000 samples of 16 normal values 95 % ± 1.5 % (three standard errors)."""
    samples = np.random.RandomState(0).randn(2000, 16)
    covered = [(found := mean_interval(row.tolist())).low <= 0 <= found.high for row in samples]  # type: ignore[operator]
    assert 0.935 < np.mean(covered) < 0.965
