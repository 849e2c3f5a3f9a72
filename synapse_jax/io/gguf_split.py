"""GGUF files in several parts, as llama.cpp's `llama-gguf-split` writes them: `NAME-00001-of-00003.gguf`.

Metadata are those of the first part; the others have little more than their numbers. Tensors are in any part.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import NoReturn

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.gguf import GgufFile, open_gguf
from synapse_jax.io.quoting import quote, shown_path

_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MAX_PARTS = 1 << 12
"""Parts that are opened: each holds a file and a mapping open."""


class SplitGguf(GgufFile):
    """The parts of a split file as one: metadata of the first, tensors of all.

    Attributes:
      parts: the open parts in order. Tensor offsets count from the start of the part.
    """

    def __init__(self, parts: list[GgufFile]):
        # Not the base's: there is no single file. All that the base reads from one is overridden.
        first = parts[0]
        self.parts = parts
        self.path = first.path
        self.version = first.version
        self.metadata = first.metadata
        self.value_types = first.value_types
        self.tensors = {name: info for part in parts for name, info in part.tensors.items()}
        self._homes = {name: part for part in parts for name in part.tensors}

    def close(self) -> None:
        """Lets go of every part; arrays that `read` gave out stay."""
        for part in self.parts:
            part.close()

    def fail(self, field: str, problem: str) -> InputError:
        """An InputError that names the first part and a field of it; the caller raises it."""
        return self.parts[0].fail(field, problem)

    def require_readable(self, name: str) -> None:
        """As `GgufFile.require_readable`; names the part that the tensor is in."""
        self._homes.get(name, super()).require_readable(name)

    def read(self, name: str, first_row: int = 0, rows: int | None = None) -> np.ndarray:
        """As `GgufFile.read`, from the part that the tensor is in."""
        self.require_readable(name)
        return self._homes[name].read(name, first_row, rows)


def open_split(path: str | os.PathLike[str]) -> GgufFile:
    """Opens a GGUF file, and all parts of one that is split.

    Args:
      path: the file, or any of its parts.

    Raises:
      InputError: as `open_gguf`; a part is missing, is not the part that its name says, or counts
        other parts or tensors; a tensor is in two parts.
    """
    opened = open_gguf(path)
    try:
        count = opened.optional_int("split.count")
        if count is None or count < 2:
            return opened
        paths = _siblings(opened, count)
    except InputError:
        opened.close()
        raise
    parts: list[GgufFile] = []
    try:
        for sibling in paths:
            parts.append(opened if sibling == opened.path else _open_part(sibling, opened))
        _check(parts, count)
    except InputError:
        for part in {id(part): part for part in (opened, *parts)}.values():
            part.close()
        raise
    return SplitGguf(parts)


def split_files(path: pathlib.Path) -> dict[str, pathlib.Path]:
    """Parts of a split file that are there, by name, whichever of them is given.

    Empty for a file that is not split, whatever its name.

    Raises:
      InputError: it has the name of a part and cannot be read.
    """
    match = _NAME.fullmatch(path.name)
    if match is None or not 2 <= int(match["count"]) <= _MAX_PARTS:
        return {}
    with open_gguf(path) as file:
        if file.optional_int("split.count") != int(match["count"]):
            return {}
    paths = [path.with_name(name) for name in part_names(path.name)]
    return {part.name: part for part in paths if part.exists()}


def part_names(name: str) -> list[str]:
    """Names of all parts of a split file, from that of one; only the name itself where it is not split."""
    match = _NAME.fullmatch(name)
    if match is None or int(match["count"]) > _MAX_PARTS:
        return [name]
    count = int(match["count"])
    return [f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]


def plain_stem(path: pathlib.Path) -> str:
    """The file's name without suffix and without the number of a part."""
    match = _NAME.fullmatch(path.name)
    return path.stem if match is None else match["stem"]


def _siblings(opened: GgufFile, count: int) -> list[pathlib.Path]:
    match = _NAME.fullmatch(opened.path.name)
    if match is None or int(match["count"]) != count:
        raise opened.fail(
            "split.count", f"is {count}, but the file is not called NAME-00001-of-{count:05}.gguf or the like"
        )
    if count > _MAX_PARTS:
        raise opened.fail("split.count", f"is {count}, at most {_MAX_PARTS} parts are opened")
    if not 1 <= int(match["number"]) <= count:
        raise opened.fail("split.count", f"is {count}, but the file's name says part {int(match['number'])}")
    return [opened.path.with_name(name) for name in part_names(opened.path.name)]


def _open_part(path: pathlib.Path, opened: GgufFile) -> GgufFile:
    if not path.exists():
        raise InputError(
            f"{shown_path(path)}: no such file: a part of {shown_path(opened.path)}, "
            f"whose split.count is {opened.metadata['split.count']}"
        )
    return open_gguf(path)


def _check(parts: list[GgufFile], count: int) -> None:
    for number, part in enumerate(parts):
        for key, expected in (("split.count", count), ("split.no", number)):
            stored = part.require_int(key)
            if stored != expected:
                raise part.fail(key, f"is {stored}, its name and the other parts say {expected}")
    total = sum(len(part.tensors) for part in parts)
    for part in parts:
        stored = part.optional_int("split.tensors.count")
        if stored is not None and stored != total:
            raise part.fail("split.tensors.count", f"is {stored}, the {count} parts have {total} tensors")
    homes: dict[str, GgufFile] = {}
    for part in parts:
        for name in part.tensors:
            if name in homes:
                _twice(part, name, homes[name])
            homes[name] = part


def _twice(part: GgufFile, name: str, other: GgufFile) -> NoReturn:
    raise part.fail(f"tensor {quote(name)}", f"is also in {shown_path(other.path)}")
