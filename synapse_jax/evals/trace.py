"""The trace of a scoring run: a JSON line for every scored token."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TextIO

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.checkpoint import Checkpoint, TraceEnd
from synapse_jax.evals.score import TracedToken
from synapse_jax.io.atomic_file import atomic_text
from synapse_jax.io.quoting import shown_path


class Trace(Protocol):
    """Where scored tokens go."""

    def write(self, token: TracedToken) -> None:
        """Adds a line."""
        ...

    def flush(self) -> TraceEnd:
        """Puts everything on the disk; returns how far it goes."""
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
        with contextlib.closing(ResumableTrace(path, checkpoint.trace_end)) as trace:
            yield trace
            trace.finish()


class NoTrace:
    """Keeps nothing."""

    def write(self, token: TracedToken) -> None:
        """Does nothing."""

    def flush(self) -> TraceEnd:
        """No bytes."""
        return TraceEnd()


class PlainTrace:
    """A trace in a file that somebody else opens and closes."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, token: TracedToken) -> None:
        """Adds a line."""
        self._file.write(_line(token))

    def flush(self) -> TraceEnd:
        """Nobody resumes it, so it need not be on the disk."""
        return TraceEnd()


class ResumableTrace:
    """A trace that is written beside its target, in `TARGET.part`, until the run has ended well.

    Args:
        path: the target.
        end: what is whole, by the checkpoint; what comes after it is cut off.

    Raises:
        InputError: the file cannot be written, or does not begin with what the checkpoint says.
    """

    def __init__(self, path: str | os.PathLike[str], end: TraceEnd):
        self._target = Path(os.path.realpath(path))
        self._part = self._target.with_name(self._target.name + ".part")
        self._shown = shown_path(path)
        try:
            if self._target.exists() and not self._target.is_file():
                raise OSError(0, "is not a file")
            # A run that was killed after its trace had taken its name goes on as well.
            if end.bytes and not self._part.exists() and self._target.exists():
                shutil.copyfile(self._target, self._part)
            self._file = open(self._part, "r+b" if end.bytes else "wb")
            self._digest = hashlib.sha256(self._file.read(end.bytes) if end.bytes else b"")
            there = self._file.tell()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{self._shown}: cannot be written: {reason}") from None
        if TraceEnd(there, self._digest.hexdigest()) != end:
            self._file.close()
            found = f"has {there} bytes" if there < end.bytes else f"begins with {end.bytes} other bytes"
            raise InputError(
                f"{shown_path(self._part)}: {found}, the checkpoint says {end.bytes} of sha256 {end.sha256}"
            )
        self._file.truncate(end.bytes)

    def write(self, token: TracedToken) -> None:
        """Adds a line."""
        line = _line(token).encode()
        with self._writing():
            self._file.write(line)
        self._digest.update(line)

    def flush(self) -> TraceEnd:
        """Puts everything on the disk; returns how far it goes.

        Raises:
            RunError: it cannot be written.
        """
        with self._writing():
            self._file.flush()
            os.fsync(self._file.fileno())
        return TraceEnd(self._file.tell(), self._digest.hexdigest())

    def finish(self) -> None:
        """Gives the file its name."""
        self.flush()
        with self._writing():
            os.replace(self._part, self._target)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"{self._shown}: cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Closes the file; what is in it stays."""
        # What could not be written was an error already.
        with contextlib.suppress(OSError):
            self._file.close()


def _line(token: TracedToken) -> str:
    """A line; the read share is left out where attention is exact."""
    fields = dataclasses.asdict(token)
    if token.read_share is None:
        del fields["read_share"]
    return json.dumps(fields) + "\n"
