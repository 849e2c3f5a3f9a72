"""Means and their 95 % intervals, by Student's t."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean of n values and where the true mean is, if the values are independent and nearly normal."""

    mean: float
    low: float | None
    """mean − t·s/√n with t of n − 1 degrees of freedom; None for a single value."""
    high: float | None
    n: int


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval of at least one value."""
    n, mean = len(values), statistics.fmean(values)
    if n == 1:
        return Interval(mean, None, None, n)
    half = student_t(CONFIDENCE, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


@functools.cache
def student_t(confidence: float, freedom: int) -> float:
    """t with P(|T| ≤ t) = confidence for Student's T.

    The probability is a finite sum in θ = atan(t / √freedom) for whole degrees of freedom (Abramowitz and
    Stegun 26.7.3 and 26.7.4) and rises with θ, so θ is found by halving to the last bit.

    Args:
        confidence: above 0, below 1.
        freedom: degrees of freedom, at least 1.

    Raises:
        ValueError: values outside these ranges.
    """
    if not 0 < confidence < 1 or freedom < 1:
        raise ValueError(f"no quantile for confidence {confidence} and {freedom} degrees of freedom")
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _central(middle, freedom) < confidence else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _central(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom · tan(angle))."""
    odd = freedom % 2
    square = math.cos(angle) ** 2
    # Terms c, c·(2/3)·cos², … for odd freedoms, 1, (1/2)·cos², … for even ones.
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= k / (k + 1) * square
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
