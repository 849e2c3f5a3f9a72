"""Two configurations on the same tokens: how far their distributions are apart."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

PERCENTILES = (99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1)
"""Those that llama-perplexity prints in its KL-divergence mode."""

BLOCK_ELEMENTS = 4 << 20
"""Most logits whose float64 log-probabilities exist at a time, on each side."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """What is kept of consecutive positions; arrays are [n], float64 unless said."""

    nll_a: np.ndarray
    """−ln p_a(token)."""
    nll_b: np.ndarray
    kl: np.ndarray | None
    """Σ_v p_a(v)·(ln p_a(v) − ln p_b(v)), in nats; exactly 0 where all logits are equal to the bit. None if
    one side gives no distributions."""
    same_top: np.ndarray
    """bool, whether both have the same most likely token."""

    @classmethod
    def join(cls, parts: list[Divergence]) -> Divergence:
        """The parts one after the other."""
        kl = [part.kl for part in parts if part.kl is not None]
        return cls(
            np.concatenate([part.nll_a for part in parts]),
            np.concatenate([part.nll_b for part in parts]),
            np.concatenate(kl) if kl else None,
            np.concatenate([part.same_top for part in parts]),
        )


def divergence(a_RV: np.ndarray, b_RV: np.ndarray, target_R: np.ndarray) -> Divergence:
    """Compares two blocks of logits, in float64 and in parts, so that memory stays bounded.

    Args:
        a_RV: float32 [R, V], the reference.
        b_RV: float32 [R, V].
        target_R: int [R], the tokens that came.
    """
    rows = max(1, BLOCK_ELEMENTS // a_RV.shape[1])
    return Divergence.join([
        _part(a_RV[i : i + rows], b_RV[i : i + rows], target_R[i : i + rows])
        for i in range(0, len(a_RV), rows)
    ])  # fmt: skip


def _part(a_RV: np.ndarray, b_RV: np.ndarray, target_R: np.ndarray) -> Divergence:
    a, b = _log_softmax(a_RV), _log_softmax(b_RV)
    row = np.arange(len(target_R))
    # A probability that is 0 in float64 adds nothing, whatever the other side says.
    p = np.exp(a)
    terms = np.where(p > 0, p * (a - b), 0.0)
    return Divergence(-a[row, target_R], -b[row, target_R], terms.sum(-1), a_RV.argmax(-1) == b_RV.argmax(-1))


def _log_softmax(logits_RV: np.ndarray) -> np.ndarray:
    x = logits_RV.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def summarize(found: Divergence) -> dict[str, Any]:
    """The figures of a comparison; an error is the standard error of a mean, null below 2 positions.

    With d = nll_b − nll_a the perplexity ratio is exp(mean d), its error σ(d)/√(n − 1) times itself: the two
    runs share their tokens, so this is far below the error of either.
    """
    change = found.nll_b - found.nll_a
    ratio = math.exp(float(change.mean()))
    delta_p = np.exp(-found.nll_b) - np.exp(-found.nll_a)
    return {
        "positions": len(change),
        "perplexity_a": math.exp(float(found.nll_a.mean())),
        "perplexity_b": math.exp(float(found.nll_b.mean())),
        "perplexity_ratio": ratio,
        "perplexity_ratio_error": _scaled(_error(change), ratio),
        "kl": None if found.kl is None else {**_spread(found.kl), "error": _error(found.kl)},
        "same_top": float(found.same_top.mean()),
        "same_top_error": _error(found.same_top.astype(np.float64)),
        "delta_p": {
            **_spread(delta_p),
            "error": _error(delta_p),
            "rms": math.sqrt(float(np.square(delta_p).mean())),
        },
        "delta_nll": {
            "mean": float(change.mean()),
            "mean_abs": float(np.abs(change).mean()),
            "max_abs": float(np.abs(change).max()),
        },
    }


def worst_positions(found: Divergence, count: int) -> list[int]:
    """Indices of at most `count` positions whose NLL changed most, the worst first, equal ones in order."""
    change = np.abs(found.nll_b - found.nll_a)
    order = np.argsort(-change, kind="stable")[:count]
    return order[change[order] > 0].tolist()


def _spread(values: np.ndarray) -> dict[str, Any]:
    found = np.percentile(values, PERCENTILES)
    return {
        "mean": float(values.mean()),
        "max": float(values.max()),
        "percentiles": {f"{p:g}": float(v) for p, v in zip(PERCENTILES, found, strict=True)},
        "min": float(values.min()),
    }


def _error(values: np.ndarray) -> float | None:
    return math.sqrt(float(values.var()) / (len(values) - 1)) if len(values) > 1 else None


def _scaled(error: float | None, factor: float) -> float | None:
    return None if error is None else error * factor
