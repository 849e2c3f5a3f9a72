"""The trace of a scoring run: a JSON line for every scored token."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TextIO

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.checkpoint import Checkpoint
from synapse_jax.evals.score import TracedToken
from synapse_jax.io.atomic_file import atomic_text
from synapse_jax.io.quoting import shown_path


class Trace(Protocol):
    """Where scored tokens go."""

    def write(self, token: TracedToken) -> None:
        """Adds a line."""
        ...

    def flush(self) -> int:
        """Puts everything on the disk; returns the length in bytes."""
        ...


@contextlib.contextmanager
def open_trace(path: str | None, checkpoint: Checkpoint | None) -> Iterator[Trace]:
    """The trace of a run, which takes its name when the block ends well.

    With a checkpoint it goes on where the checkpoint ends, and what there is of it outlives a failure.

    Raises:
        InputError: the file cannot be written.
    """
    if path is None:
        yield NoTrace()
    elif checkpoint is None:
        with atomic_text(path) as file:
            yield PlainTrace(file)
    else:
        with contextlib.closing(ResumableTrace(path, checkpoint.trace_bytes)) as trace:
            yield trace
            trace.finish()


class NoTrace:
    """Keeps nothing."""

    def write(self, token: TracedToken) -> None:
        """Does nothing."""

    def flush(self) -> int:
        """No bytes."""
        return 0


class PlainTrace:
    """A trace in a file that somebody else opens and closes."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, token: TracedToken) -> None:
        """Adds a line."""
        self._file.write(_line(token))

    def flush(self) -> int:
        """Nobody resumes it, so it need not be on the disk."""
        return 0


class ResumableTrace:
    """A trace that is written beside its target, in `TARGET.part`, until the run has ended well.

    Args:
        path: the target.
        length: bytes that are whole, by the checkpoint; what comes after them is cut off.

    Raises:
        InputError: the file cannot be written, or is shorter than the checkpoint says.
    """

    def __init__(self, path: str | os.PathLike[str], length: int):
        self._target = Path(path)
        self._part = self._target.with_name(self._target.name + ".part")
        self._shown = shown_path(path)
        try:
            # A run that was killed after its trace had taken its name goes on as well.
            if length and not self._part.exists() and self._target.exists():
                self._target.rename(self._part)
            self._file = open(self._part, "r+b" if length else "wb")
            there = self._file.seek(0, os.SEEK_END)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{self._shown}: cannot be written: {reason}") from None
        if there < length:
            self._file.close()
            raise InputError(f"{shown_path(self._part)}: has {there} bytes, the checkpoint says {length}")
        self._file.truncate(length)
        self._file.seek(length)

    def write(self, token: TracedToken) -> None:
        """Adds a line."""
        self._file.write(_line(token).encode())

    def flush(self) -> int:
        """Puts everything on the disk; returns the length in bytes.

        Raises:
            RunError: it cannot be written.
        """
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunError(f"{self._shown}: cannot be written: {error.strerror}") from error
        return self._file.tell()

    def finish(self) -> None:
        """Gives the file its name."""
        self.flush()
        os.replace(self._part, self._target)

    def close(self) -> None:
        """Closes the file; what is in it stays."""
        self._file.close()


def _line(token: TracedToken) -> str:
    """A line; the read share is left out where attention is exact."""
    fields = dataclasses.asdict(token)
    if token.read_share is None:
        del fields["read_share"]
    return json.dumps(fields) + "\n"
