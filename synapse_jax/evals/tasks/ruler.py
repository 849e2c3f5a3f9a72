"""RULER's prompts (NVIDIA) for its needle and tracking tasks.

Compatible are the words of prompts and statements, 7-digit values (5 for tracking), the number of
distractors, the tokens that an answer may take, and the metric. The text around the statements and their
places are ours, and tracking has no worked example before it.
"""

from __future__ import annotations

import dataclasses
import itertools

from synapse_jax.evals.tasks.draws import Draws
from synapse_jax.evals.tasks.needle import DISTRACTORS
from synapse_jax.evals.tasks.task import Facts
from synapse_jax.evals.tasks.tracking import NAMES, chain, sorted_places
from synapse_jax.evals.tasks.words import ADJECTIVES, NOUNS

DIGITS = 7


@dataclasses.dataclass(frozen=True)
class RulerNeedle:
    """RULER's niah_single and niah_multikey with words as keys and numbers as values."""

    name: str = "needle"
    distractors: int = 0
    answer_tokens: int = 128
    has_depth: bool = True

    def draw(self, draws: Draws, depth: float | None) -> Facts:
        """See `Task`."""
        assert depth is not None
        keys = [draws.key(ADJECTIVES, NOUNS).replace(" ", "-") for _ in range(1 + self.distractors)]
        numbers = [draws.number(DIGITS) for _ in keys]
        return Facts(
            before=(
                "A special magic number is hidden within the following text. Make sure to memorize it. "
                "I will quiz you about the number afterwards.\n"
            ),
            statements=tuple(
                f"One of the special magic numbers for {key} is: {number}."
                for key, number in zip(keys, numbers, strict=True)
            ),
            places=(depth, *(draws.fraction() for _ in range(self.distractors))),
            asked=0,
            question=f"\nWhat is the special magic number for {keys[0]} mentioned in the provided text?",
            lead_in=f" The special magic number for {keys[0]} mentioned in the provided text is",
            answers=(numbers[0],),
            decoys=tuple(numbers[1:]),
        )


@dataclasses.dataclass(frozen=True)
class RulerTracking:
    """RULER's variable tracking with one chain of four assignments."""

    name: str = "tracking"
    answer_tokens: int = 30
    has_depth: bool = False

    def draw(self, draws: Draws, depth: float | None) -> Facts:
        """See `Task`."""
        names, value = chain(draws)
        return Facts(
            before="Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n",
            statements=(
                f"VAR {names[0]} = {value}",
                *(f"VAR {b} = VAR {a}" for a, b in itertools.pairwise(names)),
            ),
            places=sorted_places(draws, NAMES),
            asked=None,
            question=(
                f"\nQuestion: Find all variables that are assigned the value {value} in the text above."
            ),
            lead_in=(
                " Answer: According to the chain(s) of variable assignment in the text above, "
                f"{NAMES} variables are assigned the value {value}, they are:"
            ),
            answers=names,
        )


RULER_MULTIKEY = RulerNeedle("multikey", DISTRACTORS)
