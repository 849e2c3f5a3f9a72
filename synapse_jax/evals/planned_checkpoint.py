"""Checkpoints of work that is listed beforehand: a line for every piece, in the order of the list."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from synapse_jax.evals.checkpoint_file import CheckpointFile

Planned = TypeVar("Planned")
Done = TypeVar("Done")


class PlannedCheckpoint(CheckpointFile, Generic[Planned, Done]):
    """A checkpoint whose lines are pieces of planned work; file, identity and errors are `CheckpointFile`'s.

    Args:
        path: the file.
        identity: what the figures depend on, as nested objects of JSON values.
        planned: what is to be done, in order.
        resume: whether the file may be there already.

    Raises:
        InputError: the file cannot be used, is there without `resume`, or is of another run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        identity: Mapping[str, Any],
        planned: Sequence[Planned],
        *,
        resume: bool,
    ):
        self._planned = planned
        self.done: list[Done] = []
        """What is done, in order."""
        super().__init__(path, identity, resume=resume)

    def add(self, done: Done) -> None:
        """Puts a piece on the disk.

        Raises:
            RunError: it cannot be written.
        """
        self.append(self.fields(done))
        self.done.append(done)

    def read_line(self, value: dict[str, Any]) -> None:
        """Takes in a piece."""
        index = len(self.done)
        planned = self._planned[index] if index < len(self._planned) else None
        self.done.append(self.read(value, index, planned))

    @abc.abstractmethod
    def fields(self, done: Done) -> Mapping[str, Any]:
        """A piece as JSON values."""

    @abc.abstractmethod
    def read(self, value: dict[str, Any], index: int, planned: Planned | None) -> Done:
        """A piece from its JSON values; ValueError, KeyError and TypeError mean that it is none.

        Args:
            value: the line.
            index: how many pieces come before it.
            planned: what was to be done there; None behind the end of the list.

        Raises:
            InputError: it is not what was to be done.
        """
