"""What a copy probe found: gains by depth over all blocks, and how far exact keys reach."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from synapse_jax.evals.interval import mean_interval
from synapse_jax.evals.probe import Trial
from synapse_jax.evals.probe_plan import NEEDLE_TOKENS, ProbePlan
from synapse_jax.spec.compressed import Compressed, SlidingWindow
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.policy import AttentionPolicy

NOTE = (
    "This is a copy probe: how much cheaper 8 random tokens become when they occurred before. It is not the "
    "long-context needle test of the literature."
)
"""What every report of the probe says."""


@dataclasses.dataclass(frozen=True)
class Reach:
    """How far back a token can see exact keys, in tokens."""

    one_layer: int
    """W − 1."""
    stacked: int
    """Through all layers, each reading what the one below it read: layers · (W − 1), or the sum over layers
    where some have another window of their own."""


def reach(spec: ModelSpec, policy: AttentionPolicy) -> Reach | None:
    """The reach of a window's exact keys; None under a policy without one."""
    if not isinstance(policy, SlidingWindow | Compressed):
        return None
    windows = [policy.window_of(spec, layer) for layer in range(spec.layers)]
    return Reach(policy.window - 1, sum(window - 1 for window in windows))


def summarize(
    plan: ProbePlan, trials: Sequence[Trial], spec: ModelSpec, policy: AttentionPolicy
) -> dict[str, Any]:
    """The figures of a whole probe.

    Args:
        plan: what was probed.
        trials: one for every block and measured depth, block by block.
        spec: of the model.
        policy: in force.

    Returns:
        JSON values: `rows` are the first block's, in the original's five fields; `depths` has the means of
        all blocks, with the 95 % interval of the gains; `trials` has the tokens and NLLs behind them.
    """
    found = reach(spec, policy)
    return {
        "note": NOTE,
        "length": plan.length,
        "blocks": plan.blocks,
        "needle_tokens": NEEDLE_TOKENS,
        "seed": plan.seed,
        "skipped_depths": list(plan.skipped),
        "reach": None if found is None else dataclasses.asdict(found),
        "rows": [trial.row() for trial in trials if trial.plant.block == 0],
        "depths": [_depth(depth, trials) for depth in plan.measured],
        "trials": [trial_fields(trial) for trial in trials],
    }


def trial_fields(trial: Trial) -> dict[str, Any]:
    """A trial as JSON values; what was reused is left out, since it is no part of the result."""
    return {**dataclasses.asdict(trial.plant), "recalled": list(trial.recalled), "unseen": list(trial.unseen)}


def _depth(depth: int, trials: Sequence[Trial]) -> dict[str, Any]:
    here = [trial for trial in trials if trial.plant.depth == depth]
    return {
        "depth": depth,
        "n": len(here),
        "gain": _interval([trial.gain for trial in here]),
        "gain_without_first": _interval([trial.gain_without_first for trial in here]),
        "needle_nll_recalled": statistics.fmean(trial.needle_nll_recalled for trial in here),
        "needle_nll_unseen": statistics.fmean(trial.needle_nll_unseen for trial in here),
    }


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    found = mean_interval(values)
    return {"mean": found.mean, "low": found.low, "high": found.high}
