"""What a quality run asks for, and its cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from synapse_jax.errors import InputError
from synapse_jax.evals.tasks.case import Case, CaseName, build_case
from synapse_jax.evals.tasks.filler import Filler
from synapse_jax.evals.tasks.names import OWN, RULER
from synapse_jax.evals.tasks.prompt import PromptWriter
from synapse_jax.evals.tasks.task import Task


@dataclasses.dataclass(frozen=True)
class QualityPlan:
    """Which cases there are, but for haystack, vocabulary and model."""

    tasks: tuple[str, ...]
    """Names of tasks."""
    lengths: tuple[int, ...]
    """Most tokens of prompt and answer together."""
    depths: tuple[float, ...]
    """Depths of tasks that have one, 0 to 1."""
    seed: int = 0
    samples: int = 1
    """Cases a task, length and depth."""
    answer_tokens: int | None = None
    """Most tokens of an answer; None: each task's own."""
    ruler: bool = False
    """Whether prompts are in RULER's words."""

    def __post_init__(self):
        for task in self.tasks:
            if task not in OWN:
                raise InputError(f"there is no task {task!r}; choose from {', '.join(OWN)}")
        for field, least in (("seed", 0), ("samples", 1), ("answer_tokens", 1)):
            value = getattr(self, field)
            if value is not None and value < least:
                raise InputError(f"{field.replace('_', ' ')} {value} is below {least}")
        for length in self.lengths:
            if length < 1:
                raise InputError(f"length {length} is below 1")
        for depth in self.depths:
            if not 0 <= depth <= 1:
                raise InputError(f"depth {depth:g} is not between 0 and 1")
        for field in ("tasks", "lengths", "depths"):
            values = getattr(self, field)
            if not values:
                raise InputError(f"no {field} are given")
            for value in values:
                if values.count(value) > 1:
                    raise InputError(f"{field} {', '.join(map(str, values))}: {value} is there twice")

    @property
    def _tasks(self) -> Mapping[str, Task]:
        return RULER if self.ruler else OWN

    def answer_tokens_of(self, task: str) -> int:
        """Most tokens of an answer to a task."""
        return self._tasks[task].answer_tokens if self.answer_tokens is None else self.answer_tokens

    def names(self) -> list[CaseName]:
        """Every case, in the order that they are run: lengths as given, so that one session serves them."""
        return [
            CaseName(task, length, depth, sample)
            for length in self.lengths
            for task in self.tasks
            for depth in (self.depths if self._tasks[task].has_depth else (None,))
            for sample in range(self.samples)
        ]

    def cases(
        self, filler: Filler, writer: PromptWriter, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[Case]:
        """Writes every case.

        Args:
            filler: the text that facts are hidden in.
            writer: of the model.
            progress: called with (cases written, cases).

        Raises:
            InputError: a length that is too short, or a haystack.
        """
        names = self.names()
        for index, name in enumerate(names):
            task = self._tasks[name.task]
            yield build_case(name, task, self.seed, filler, writer, self.answer_tokens_of(name.task))
            if progress is not None:
                progress(index + 1, len(names))


def parse_list(text: str, what: str, read: Callable[[str], int | float], example: str) -> tuple:
    """Numbers as people write them: `4096,8192`.

    Raises:
        InputError: something that is no such number.
    """
    values = []
    for word in (word.strip() for word in text.split(",")):
        try:
            if not word.isascii() or "_" in word:  # Python reads more than people write
                raise ValueError
            values.append(read(word))
        except ValueError:
            raise InputError(f"{what} {text!r}: {word!r} is not one; give {example}") from None
    return tuple(values)
