"""What a task is: facts that are planted in a text, and a question with one right answer."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from synapse_jax.evals.tasks.draws import Draws


@dataclasses.dataclass(frozen=True)
class Facts:
    """One case of a task, but for the text around it."""

    before: str
    """What the model is told before the text, with the white space between."""
    statements: tuple[str, ...]
    """Sentences to plant, in the order of `places`."""
    places: tuple[float, ...]
    """Depth of each statement, a fraction of the text's tokens; those that build on each other ascend."""
    asked: int | None
    """Index of the statement whose depth is the case's; None where all of them are asked for."""
    question: str
    """After the text, with the white space between."""
    lead_in: str
    """How the answer begins; the model continues it. White space before it separates it from the
    question, and falls away where a chat template is."""
    answers: tuple[str, ...]
    """The number, or all the names, that are asked for."""
    decoys: tuple[str, ...] = ()
    """Values of other statements, which are wrong answers."""


class Task(Protocol):
    """A kind of case."""

    @property
    def name(self) -> str:
        """As `--tasks` calls it."""
        ...

    @property
    def answer_tokens(self) -> int:
        """Tokens that an answer may take, unless asked otherwise."""
        ...

    @property
    def has_depth(self) -> bool:
        """Whether the answer lies at one place."""
        ...

    def draw(self, draws: Draws, depth: float | None) -> Facts:
        """A case.

        Args:
            draws: of this case alone.
            depth: where the answer is to lie, 0 to 1; None for tasks without a depth.
        """
        ...
