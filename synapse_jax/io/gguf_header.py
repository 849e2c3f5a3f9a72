"""The header of a GGUF file: metadata and tensor descriptions, checked before anything is trusted.

Format: `docs/gguf.md` of the ggml repository. What each check refuses is told
by the function that makes it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import mmap
from typing import Any

from synapse_jax.io import gguf_types
from synapse_jax.io.gguf_cursor import Cursor
from synapse_jax.io.quoting import quote

# Far above any real model: some hundred keys, some thousand tensors.
MAX_KEYS = 1 << 13
MAX_TENSORS = 1 << 15
MAX_KEY_BYTES = 65535
MAX_NAME_BYTES = 63
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 16
DEFAULT_ALIGNMENT = 32

_SMALLEST_KEY = 8 + 1 + 4 + 1
_SMALLEST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies in the file and how it is stored."""

    name: str
    """As the file names it."""
    shape: tuple[int, ...]
    """numpy order, slowest first: the reverse of the file's."""
    type: gguf_types.TensorType
    """Block layout and name of the type."""
    offset: int
    """Bytes from the start of the file."""
    nbytes: int
    """Bytes stored."""

    @property
    def type_name(self) -> str:
        """For example `Q4_1`."""
        return self.type.name

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Header:
    """Everything before the tensor data."""

    version: int
    """2 or 3."""
    alignment: int
    """Bytes; tensor offsets are multiples of it."""
    metadata: dict[str, Any]
    """Values by key, in the file's order."""
    value_types: dict[str, str]
    """The stored type of each value, for example `uint32` or `array of string`."""
    tensors: dict[str, TensorInfo]
    """Tensors by name, in the file's order."""


def parse_header(data: mmap.mmap | bytes, path: str) -> Header:
    """Parses and checks the header of a whole file.

    Bytes after the last tensor and gaps between tensors are allowed: writers
    pad. Tensor data is not looked at.

    Args:
      data: every byte of the file.
      path: as error messages show it.

    Raises:
      InputError: for anything that is not a well-formed little-endian file of
        version 2 or 3 whose tensors all lie inside it.
    """
    cursor = Cursor(data, path)
    version = _version(cursor)
    tensor_count = cursor.u64("tensor count")
    key_count = cursor.u64("key count")
    _check_count(cursor, "key count", key_count, MAX_KEYS, _SMALLEST_KEY)
    metadata, value_types = _metadata(cursor, key_count)
    alignment = _alignment(cursor, metadata, value_types)
    _check_split(cursor, metadata)
    _check_count(cursor, "tensor count", tensor_count, MAX_TENSORS, _SMALLEST_TENSOR)
    entries = {}
    for index in range(tensor_count):
        info = _tensor(cursor, index, alignment)
        if info.name in entries:
            raise cursor.fail(f"tensor {quote(info.name)}", "appears twice")
        entries[info.name] = info
    tensors = _place(cursor, entries, -(-cursor.position // alignment) * alignment)
    return Header(version, alignment, metadata, value_types, tensors)


def _version(cursor: Cursor) -> int:
    magic = cursor.data[:4]
    if magic != b"GGUF":
        raise cursor.fail("magic", f"is {quote(magic)}, not b'GGUF': not a GGUF file")
    cursor.position = 4
    version = cursor.u32("version")
    if version in (2, 3):
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version & 0xFFFF == 0 and 0 < swapped <= 0xFFFF:
        raise cursor.fail("version", f"is {swapped} in big-endian order: big-endian files are not supported")
    raise cursor.fail("version", f"is {version}, only 2 and 3 are supported")


def _check_count(cursor: Cursor, field: str, count: int, most: int, smallest: int) -> None:
    remaining = cursor.size - cursor.position
    if count * smallest > remaining:
        raise cursor.fail(
            field,
            f"is {count}, which needs {count * smallest} bytes or more; the file has "
            f"{remaining} left of {cursor.size}: truncated or malformed",
        )
    if count > most:
        raise cursor.fail(field, f"is {count}, at most {most} are allowed")


def _metadata(cursor: Cursor, count: int) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    types: dict[str, str] = {}
    for index in range(count):
        key = cursor.name(f"key {index}", MAX_KEY_BYTES)
        field = f"key {quote(key)}"
        if key in values:
            raise cursor.fail(field, "appears twice")
        values[key], types[key] = cursor.value(cursor.u32(f"{field} type"), field)
    return values, types


def _alignment(cursor: Cursor, metadata: dict[str, Any], types: dict[str, str]) -> int:
    key = "general.alignment"
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    value = metadata[key]
    if types[key] != "uint32" or not isinstance(value, int):
        raise cursor.fail(key, f"has type {types[key]}, not uint32")
    # The format wants a multiple of 8; a power of two is what ggml adds.
    if not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise cursor.fail(key, f"is {value}, not a power of two from 8 to {MAX_ALIGNMENT}")
    return value


def _check_split(cursor: Cursor, metadata: dict[str, Any]) -> None:
    count = metadata.get("split.count", 0)
    if not isinstance(count, int) or isinstance(count, bool):
        raise cursor.fail("split.count", f"is {quote(count)}, not an integer")
    if count < 0:
        raise cursor.fail("split.count", f"is {count}, not a number of files")


def _tensor(cursor: Cursor, index: int, alignment: int) -> TensorInfo:
    """One description; its offset is still relative to the data section."""
    name = cursor.name(f"tensor {index} name", MAX_NAME_BYTES)
    field = f"tensor {quote(name)}"
    count = cursor.u32(f"{field} dimension count")
    if not 1 <= count <= MAX_DIMS:
        raise cursor.fail(field, f"has {count} dimensions, not 1 to {MAX_DIMS}")
    dims = [cursor.u64(f"{field} dimension {axis}") for axis in range(count)]
    if min(dims) < 1:
        raise cursor.fail(field, f"has the dimensions {dims}, each must be at least 1")
    number = cursor.u32(f"{field} type")
    if number in gguf_types.REMOVED_TENSOR_TYPES:
        raise cursor.fail(
            field,
            f"has type {number} ({gguf_types.REMOVED_TENSOR_TYPES[number]}), which was "
            "removed from GGUF; quantize the model again",
        )
    if number not in gguf_types.TENSOR_TYPES:
        raise cursor.fail(field, f"has type {number}, which is unknown")
    kind = gguf_types.TENSOR_TYPES[number]
    if dims[0] % kind.block:
        raise cursor.fail(
            field, f"has rows of {dims[0]} elements, not a multiple of the {kind.name} block of {kind.block}"
        )
    # Python integers: a product of four 64-bit dimensions cannot wrap.
    nbytes = kind.row_bytes(math.prod(dims))
    offset = cursor.u64(f"{field} offset")
    if offset % alignment:
        raise cursor.fail(field, f"has offset {offset}, not a multiple of the alignment {alignment}")
    return TensorInfo(name, tuple(reversed(dims)), kind, offset, nbytes)


def _place(cursor: Cursor, entries: dict[str, TensorInfo], start: int) -> dict[str, TensorInfo]:
    """Makes offsets absolute; refuses tensors outside the file or over one another."""
    placed = {name: dataclasses.replace(info, offset=start + info.offset) for name, info in entries.items()}
    for info in placed.values():
        if info.offset + info.nbytes > cursor.size:
            present = max(0, cursor.size - info.offset)
            raise cursor.fail(
                f"tensor {quote(info.name)}",
                f"needs {info.nbytes} bytes at offset {info.offset}, the file has {present} of "
                f"them ({cursor.size} bytes in all): truncated or malformed",
            )
    ordered = sorted(placed.values(), key=lambda info: info.offset)
    for before, after in itertools.pairwise(ordered):
        if before.offset + before.nbytes > after.offset:
            raise cursor.fail(
                f"tensor {quote(after.name)}",
                f"starts at offset {after.offset}, inside tensor {quote(before.name)} of bytes "
                f"{before.offset} to {before.offset + before.nbytes}",
            )
    return placed
