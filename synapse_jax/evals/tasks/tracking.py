"""Variables that take their value from each other, all over a long text."""

from __future__ import annotations

import dataclasses
import itertools

from synapse_jax.evals.tasks.draws import Draws
from synapse_jax.evals.tasks.task import Facts

NAMES, LETTERS, DIGITS = 5, 5, 5
"""Variables in the chain, letters of a name, digits of the value."""


@dataclasses.dataclass(frozen=True)
class Tracking:
    """A chain of variables, the first with a value and each further one with that of the one before it."""

    name: str = "tracking"
    answer_tokens: int = 48
    has_depth: bool = False

    def draw(self, draws: Draws, depth: float | None) -> Facts:
        """See `Task`."""
        names, value = chain(draws)
        first = f"The variable {names[0]} is set to {value}."
        rest = (f"The variable {b} is set to {a}." for a, b in itertools.pairwise(names))
        return Facts(
            before="Below is a text in which variables are set at several places. Remember them.\n\n",
            statements=(first, *rest),
            places=sorted_places(draws, NAMES),
            asked=None,
            question=f"\n\nWhich {NAMES} variables have the value {value}? Name all of them.",
            lead_in=f"\nThe variables with the value {value} are",
            answers=names,
        )


def chain(draws: Draws) -> tuple[tuple[str, ...], str]:
    """Names of the variables in the order of the chain, and the value of all of them."""
    return tuple(draws.name(LETTERS) for _ in range(NAMES)), draws.number(DIGITS)


def sorted_places(draws: Draws, count: int) -> tuple[float, ...]:
    """Depths in ascending order, so that a variable is set before another one takes its value."""
    return tuple(sorted(draws.fraction() for _ in range(count)))
