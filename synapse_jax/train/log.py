"""The log of a training run: a JSON line a step, and one for every look at the held-out split."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.file_lock import lock_file
from synapse_jax.io.quoting import shown_path


@dataclasses.dataclass(frozen=True)
class StepLine:
    """One step."""

    step: int
    """Steps done, this one included."""
    loss: float
    """Mean NLL of its targets before it, in nats."""
    rate: float
    """Its learning rate."""
    seconds: float
    """Time that the run has taken so far, compilation and interruptions left out."""


@dataclasses.dataclass(frozen=True)
class HeldOutLine:
    """The held-out split after a step."""

    step: int
    """Steps done."""
    held_out_loss: float
    """Mean NLL of all targets of the windows, in nats."""
    windows: int
    """Windows that were evaluated."""


Line = StepLine | HeldOutLine


class TrainingLog:
    """A file that grows by a line at a time and is locked while a run writes it.

    Args:
        path: the file; made if it is missing.
        resume: whether it may hold lines.

    Raises:
        InputError: the file cannot be used, another run is writing it, or it holds lines without `resume`.
    """

    def __init__(self, path: Path, *, resume: bool):
        self._shown = shown_path(path)
        try:
            self._file: BinaryIO = open(path, "r+b" if path.exists() else "x+b", buffering=0)
        except OSError as error:
            raise InputError(f"{self._shown}: cannot be written: {error.strerror}") from None
        lock_file(self._file, self._shown)
        if not resume and os.fstat(self._file.fileno()).st_size:
            self._file.close()
            raise InputError(f"{self._shown}: is there already; --resume goes on with it")

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, line: Line) -> None:
        """Appends a line.

        Raises:
            RunError: it cannot be written.
        """
        data = json.dumps(dataclasses.asdict(line), allow_nan=False).encode() + b"\n"
        try:
            if self._file.write(data) != len(data):
                raise OSError(0, "only a part of a line was written")
        except OSError as error:
            raise RunError(f"{self._shown}: cannot be written: {error.strerror}") from error

    def flush(self) -> None:
        """Puts all lines on the disk: a checkpoint must not be newer than its log."""
        os.fsync(self._file.fileno())

    def begin(self, step: int) -> list[Line]:
        """The lines up to a step. Later ones are cut off: a run that goes on from there writes them again.

        Raises:
            InputError: the file is no log, or steps up to `step` are missing.
        """
        kept: list[Line] = []
        end = 0
        for number, data in enumerate(self._file.read().splitlines(keepends=True), 1):
            line = _parse(data, f"{self._shown}: line {number}") if data.endswith(b"\n") else None
            if line is None or line.step > step:
                break
            kept.append(line)
            end += len(data)
        if [line.step for line in kept if isinstance(line, StepLine)] != list(range(1, step + 1)):
            raise InputError(f"{self._shown}: does not hold the {step} steps of the checkpoint")
        self._file.truncate(end)
        self._file.seek(end)
        return kept


def read_log(path: str | os.PathLike[str]) -> list[Line]:
    """The whole lines of a log.

    Raises:
        InputError: the file cannot be read, or is something else.
    """
    try:
        lines = Path(path).read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"{shown_path(path)}: cannot be read: {error.strerror}") from None
    whole = [line for line in lines if line.endswith(b"\n")]
    return [_parse(line, f"{shown_path(path)}: line {number}") for number, line in enumerate(whole, 1)]


def _parse(data: bytes, source: str) -> Line:
    try:
        fields: dict[str, Any] = json.loads(data)
        return (HeldOutLine if "held_out_loss" in fields else StepLine)(**fields)
    except (ValueError, TypeError):
        raise InputError(f"{source}: is not of a training log") from None
