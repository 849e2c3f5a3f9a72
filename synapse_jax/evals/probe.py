"""The copy probe: is a random sequence of tokens easier to predict when it occurred before?

Eight random tokens, the needle, are planted at a depth of a real text and repeated at its end. The gain is
what the final copy costs with other random tokens, the decoy, at the depth, less what it costs with the
needle there. This is a copy probe, not the long-context needle test of the literature, which asks for a fact
that is stated in words.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from synapse_jax.dims import MAX_STEP_ROWS
from synapse_jax.errors import RunError
from synapse_jax.evals.probe_plan import Plant, ProbePlan
from synapse_jax.runtime.plan import scoring_entries
from synapse_jax.spec.attention import Dense
from synapse_jax.spec.policy import AttentionPolicy

if TYPE_CHECKING:  # what is asked for is checked without jax
    from synapse_jax.runtime.session import Progress, Session


@dataclasses.dataclass(frozen=True)
class Trial:
    """One plant, measured."""

    plant: Plant
    recalled: tuple[float, ...]
    """NLL of the 8 tokens of the final copy, in nats, where the needle is planted."""
    unseen: tuple[float, ...]
    """The same where the decoy is."""
    reused_tokens: int = 0
    """Tokens of both sequences whose keys and values were there already."""

    @property
    def needle_nll_recalled(self) -> float:
        """Mean NLL of the copy of a needle that is planted."""
        return statistics.fmean(self.recalled)

    @property
    def needle_nll_unseen(self) -> float:
        """Mean NLL of the same tokens when they were never seen before."""
        return statistics.fmean(self.unseen)

    @property
    def gain(self) -> float:
        """How much less a token of the copy costs, in nats."""
        return self.needle_nll_unseen - self.needle_nll_recalled

    @property
    def gain_without_first(self) -> float:
        """The gain of the last seven tokens: nothing can predict that the first comes now."""
        return statistics.fmean(self.unseen[1:]) - statistics.fmean(self.recalled[1:])

    def row(self) -> dict[str, Any]:
        """The five fields of the original's report."""
        return {
            "type": "copy_probe",
            "depth": self.plant.depth,
            "gain": self.gain,
            "needle_nll_recalled": self.needle_nll_recalled,
            "needle_nll_unseen": self.needle_nll_unseen,
        }


def scoring_rows(plan: ProbePlan, policy: AttentionPolicy) -> int:
    """Tokens a step at most: one where the copy must have the decode role, else as many as there are."""
    return 1 if policy.is_decode_only else min(MAX_STEP_ROWS, plan.length - 1)


def probe_entries(plan: ProbePlan, policy: AttentionPolicy) -> list[tuple[str, int]]:
    """(entry, rows) pairs that a probe uses, also where it begins with a prefix that is held."""
    rows, begins = scoring_rows(plan, policy), (0, *plan.measured) if _reuses(policy) else (0,)
    prompt = plan.copy_start - 1 if policy.is_decode_only else 0
    return sorted({
        pair for first in begins for pair in scoring_entries(plan.length - 1 - first, rows, prompt)
    })  # fmt: skip


def _reuses(policy: AttentionPolicy) -> bool:
    """Whether sequences begin with the prefix that they share with the one before: not a bit changes."""
    return isinstance(policy, Dense)


def run_trials(
    session: Session,
    blocks_NL: np.ndarray,
    plan: ProbePlan,
    plants: Sequence[Plant],
    *,
    done: int = 0,
    progress: Progress | None = None,
) -> Iterator[Trial]:
    """Measures plants in order.

    Args:
        session: its context is at least L.
        blocks_NL: int32 [N, L], from `ProbePlan.cut`.
        plan: the plan of these.
        plants: from `draw_plants`.
        done: first plants that an earlier run has measured.
        progress: called with (positions evaluated, positions to evaluate), two sequences a plant.

    Yields:
        A trial for each further plant.

    Raises:
        RunError: a NaN or infinite NLL; block, depth and position are named.
    """
    policy = session.profile.policy
    rows, reuse = scoring_rows(plan, policy), _reuses(policy)
    each, report = plan.length - 1, progress or (lambda done, total: None)
    whole = 2 * each * len(plants)
    report(2 * each * done, whole)
    for index, plant in enumerate(plants[done:], done):
        block_L, both = blocks_NL[plant.block], []
        for half, ids in enumerate((plant.planted(block_L), plant.control(block_L))):
            before = (2 * index + half) * each
            try:
                scores = session.score(
                    ids,
                    plan.copy_start,
                    rows=rows,
                    reuse=reuse,
                    progress=lambda done, _, before=before: report(before + done, whole),
                )
            except RunError as error:
                raise RunError(f"block {plant.block}, depth {plant.depth}: {error}") from error
            both.append(scores)
        recalled, unseen = (tuple(scores.nll.astype(np.float64).tolist()) for scores in both)
        yield Trial(plant, recalled, unseen, sum(scores.reused_tokens for scores in both))
