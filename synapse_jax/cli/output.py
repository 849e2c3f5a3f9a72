"""Where results go: a table or JSON on standard output, a record in a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from absl import flags

from synapse_jax.errors import InputError
from synapse_jax.evals.record import record_json
from synapse_jax.io.atomic_file import atomic_text


@contextlib.contextmanager
def optional_file(path: str | None) -> Iterator[TextIO | None]:
    """An atomic text file, or None for no path. Opened before the work, so that a bad path costs nothing."""
    if path is None:
        yield None
        return
    with atomic_text(path) as file:
        yield file


def check_files_differ(values: flags.FlagValues, names: Sequence[str]) -> None:
    """Refuses two flags that name the same file to write.

    Raises:
        InputError: names both.
    """
    named: dict[str, str] = {}
    for name in names:
        path = values[name].value
        if path is None:
            continue
        other = named.setdefault(os.path.realpath(path), name)
        if other != name:
            raise InputError(f"--{other} and --{name} are both {path}")


def save(file: TextIO | None, record: dict[str, Any]) -> None:
    """Writes the record to the file of `--output`, if there is one."""
    line = record_json(record)
    if file is not None:
        file.write(line + "\n")


def show(values: flags.FlagValues, record: dict[str, Any], table: list[tuple[str, str]]) -> None:
    """Prints the record as JSON or as a table.

    Commands call it after their files have taken their names: a reader of standard output that goes
    away early then costs no result.
    """
    if values.json:
        print(record_json(record))
    else:
        width = max((len(name) for name, _ in table), default=0)
        for name, value in table:
            print(_printable(f"{name:<{width}}  {value}".rstrip()))


def _printable(line: str) -> str:
    """The line with what does not print escaped: a name out of a file may hold terminal commands."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
