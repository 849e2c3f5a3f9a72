"""Files of runs that can be resumed: what it is a run of, then what is done, a line each."""

from __future__ import annotations

import abc
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.file_lock import lock_file
from synapse_jax.io.quoting import shown_path

SCHEMA = "synapse.checkpoint/1"
BEGINNING = b'{"schema": "synapse.checkpoint/'
"""First bytes of every checkpoint."""


class CheckpointFile(abc.ABC):
    """A file that grows by a line a piece of work, each on the disk before the next piece begins.

    A run that was killed goes on after the last whole line. Floats are written so that they read back to the
    bit. The file's first line says what was run; a run of anything else is refused.

    Args:
        path: the file.
        identity: what the figures depend on, as nested objects of JSON values.
        resume: whether the file may be there already.

    Raises:
        InputError: the file cannot be used, is there without `resume`, or is of another run.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any], *, resume: bool):
        self.shown, self._identity = shown_path(path), dict(identity)
        self._graphs: dict[str, Any] | None = None
        self._file = self._open(Path(path), resume)
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def begin(self, graphs: Mapping[str, Any]) -> None:
        """Says which compiled graphs the run uses, by entry.

        Raises:
            InputError: what is there came from other graphs: its figures may differ in bits.
        """
        if self._graphs is None:
            self._graphs = dict(graphs)
            self.append({"schema": SCHEMA, "identity": self._identity, "graphs": self._graphs})
        else:
            self._check("graphs", self._graphs, dict(graphs))

    def _open(self, path: Path, resume: bool) -> BinaryIO:
        try:
            if path.exists() and not path.is_file():
                raise OSError(0, "is not a file")
            if path.exists() and path.stat().st_size and not resume:
                raise InputError(f"{self.shown}: is there already; --resume goes on with it")
            file = open(path, "r+b" if path.exists() else "x+b", buffering=0)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{self.shown}: cannot be used as a checkpoint: {reason}") from None
        lock_file(file, self.shown)
        return file

    def _read(self) -> None:
        """Reads what is there and cuts a last line off that was not written whole."""
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        # Half a first line is cut off as well, but only if it is one of ours.
        if not whole and data[: len(BEGINNING)] != BEGINNING[: len(data)]:
            raise InputError(f"{self.shown}: line 1 is not of a checkpoint")
        lines = whole.splitlines()
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
                if number == 1:
                    self._read_header(value)
                else:
                    self.read_line(value)
            except InputError:
                raise
            except (ValueError, KeyError, TypeError):
                raise InputError(f"{self.shown}: line {number} is not of a checkpoint") from None
        self._file.truncate(len(whole))
        self._file.seek(len(whole))

    def _read_header(self, value: dict[str, Any]) -> None:
        if value["schema"] != SCHEMA:
            raise InputError(f"{self.shown}: is a {value['schema']}, not a {SCHEMA}")
        self._check("identity", value["identity"], self._identity)
        self._graphs = value["graphs"]

    def _check(self, name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
        different = sorted(_differences(theirs, json.loads(json.dumps(ours))))
        if different:
            raise InputError(f"{self.shown}: is of another run: {', '.join(different)} differ ({name})")

    @abc.abstractmethod
    def read_line(self, value: dict[str, Any]) -> None:
        """Takes in a piece of work that is there; ValueError, KeyError and TypeError mean that it is none.

        Raises:
            InputError: it is of another run.
        """

    def append(self, value: Mapping[str, Any]) -> None:
        """Puts a piece of work on the disk.

        Raises:
            RunError: it cannot be written.
        """
        line = json.dumps(value, allow_nan=False).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError(0, "only a part of a line was written")
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunError(f"{self.shown}: cannot be written: {error.strerror}") from error


def _differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Paths at which two JSON values differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        found = []
        for key in a.keys() | b.keys():
            found += _differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
        return found
    return [] if a == b else [path]
