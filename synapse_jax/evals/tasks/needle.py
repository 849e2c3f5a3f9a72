"""One fact in a long text, alone or among three that look like it."""

from __future__ import annotations

import dataclasses

from synapse_jax.evals.tasks.draws import Draws
from synapse_jax.evals.tasks.task import Facts
from synapse_jax.evals.tasks.words import ADJECTIVES, NOUNS

DIGITS = 5
DISTRACTORS = 3


@dataclasses.dataclass(frozen=True)
class Needle:
    """A number that one sentence gives to a key.

    Distractors give other numbers to other keys, at depths of their own.
    """

    name: str = "needle"
    distractors: int = 0
    """Sentences of the same form."""
    answer_tokens: int = 24
    has_depth: bool = True

    def draw(self, draws: Draws, depth: float | None) -> Facts:
        """See `Task`."""
        assert depth is not None
        keys = [draws.key(ADJECTIVES, NOUNS) for _ in range(1 + self.distractors)]
        numbers = [draws.number(DIGITS) for _ in keys]
        return Facts(
            before="Below is a text in which a secret number is given. Remember it: you will be asked.\n\n",
            statements=tuple(
                f"The secret number of the {key} is {number}."
                for key, number in zip(keys, numbers, strict=True)
            ),
            places=(depth, *(draws.fraction() for _ in range(self.distractors))),
            asked=0,
            question=f"\n\nWhat is the secret number of the {keys[0]}?",
            lead_in=f"\nThe secret number of the {keys[0]} is",
            answers=(numbers[0],),
            decoys=tuple(numbers[1:]),
        )


MULTIKEY = Needle("multikey", DISTRACTORS)
