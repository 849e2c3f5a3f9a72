"""What a training run keeps in its folder, and how it goes on from there."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from synapse_jax.errors import InputError
from synapse_jax.graph.training import TrainState
from synapse_jax.io.atomic_file import atomic_text
from synapse_jax.io.quoting import shown_path
from synapse_jax.train.checkpoints import Checkpoints, Identity
from synapse_jax.train.log import Line, StepLine, TrainingLog

PLAN_NAME = "plan.json"
"""What the run is: its identity, for people; a checkpoint has it too."""
LOG_NAME = "log.jsonl"
CHECKPOINTS_NAME = "checkpoints"


class Kept:
    """The lines of a run so far; those and its states on the disk where it has a folder.

    Args:
        log: its log.
        checkpoints: its states.
        every_s: seconds between checkpoints.
    """

    def __init__(self, log: TrainingLog | None, checkpoints: Checkpoints | None, every_s: float):
        self._log, self._checkpoints, self._every_s = log, checkpoints, every_s
        self._saved_at = time.monotonic()
        self.lines: list[Line] = []
        """The log of the whole run."""

    def begin(self, first: TrainState) -> tuple[TrainState, int]:
        """The state to go on from, and the steps that it has behind it.

        Args:
            first: the state before the first step.
        """
        step = 0
        if self._log is not None and self._checkpoints is not None:
            step = self._checkpoints.newest or 0
            self.lines = self._log.begin(step)
        return (first if not step or self._checkpoints is None else self._checkpoints.restore(first)), step

    @property
    def seconds(self) -> float:
        """Time that all steps so far have taken."""
        return next((line.seconds for line in reversed(self.lines) if isinstance(line, StepLine)), 0.0)

    def add(self, line: Line) -> None:
        """Appends a line to the log."""
        self.lines.append(line)
        if self._log is not None:
            self._log.add(line)

    def save(self, step: int, state: TrainState, *, is_last: bool = False) -> None:
        """Puts the state on the disk if it is time for it, or the last one."""
        if self._log is None or self._checkpoints is None or self._checkpoints.newest == step:
            return
        if is_last or time.monotonic() - self._saved_at >= self._every_s:
            self._log.flush()
            self._checkpoints.save(step, state)
            self._saved_at = time.monotonic()


@contextlib.contextmanager
def open_run(folder: Path | None, identity: Identity, *, resume: bool, every_s: float) -> Iterator[Kept]:
    """Opens what a run keeps.

    Args:
        folder: made if it is missing; None keeps nothing.
        identity: of the run.
        resume: whether there may be some already.
        every_s: seconds between checkpoints.

    Raises:
        InputError: the folder cannot be used, holds a run without `resume`, or is of another run.
    """
    if folder is None:
        yield Kept(None, None, every_s)
        return
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{shown_path(folder)}: cannot be used as a folder: {error.strerror}") from None
    # The log is first: its lock keeps a second run from the checkpoints.
    with (
        TrainingLog(folder / LOG_NAME, resume=resume) as log,
        Checkpoints(folder / CHECKPOINTS_NAME, identity) as checkpoints,
    ):
        with atomic_text(folder / PLAN_NAME) as file:
            file.write(json.dumps(dict(identity), indent=2, sort_keys=True) + "\n")
        yield Kept(log, checkpoints, every_s)
