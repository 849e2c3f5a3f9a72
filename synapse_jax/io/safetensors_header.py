"""The header of a safetensors file, checked before anything is trusted.

Format: the README of the safetensors repository. A file is the length of the
header (u64, little endian), the header (one JSON object) and the tensors' bytes
without gaps. Stricter than the reference library: no key twice (it takes the
last), no empty name or NUL in one, no other fields in an entry, no null for the
metadata, no space before the object, and the limits below.
"""

from __future__ import annotations

import dataclasses
import json
import math
import mmap
from typing import Any, NoReturn

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import quote

MAX_HEADER = 1 << 22
"""Bytes a header may have: 4 MiB, some 30,000 tensors. The format's own limit is 100 million, which would be
seconds of work and gigabytes of Python objects for a header made for it."""
MAX_DIMS = 8
"""Axes a tensor may have."""

DTYPE_BITS: dict[str, int] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits an element, of every type that the format knows (safetensors 0.8)."""
READABLE = ("F32", "F16", "BF16")
"""Types that can be read as float32."""

_FORMAT_LIMIT = 100_000_000
_FIELDS = ("dtype", "shape", "data_offsets")


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in the file and how it is stored."""

    dtype: str
    """A key of DTYPE_BITS."""
    shape: tuple[int, ...]
    """Slowest axis first; () for a single number."""
    start: int
    """First byte, from the start of the file."""
    stop: int
    """The byte after its last one."""

    @property
    def type_name(self) -> str:
        """The dtype, by the name that descriptions of all formats have."""
        return self.dtype

    @property
    def nbytes(self) -> int:
        """Bytes stored."""
        return self.stop - self.start


@dataclasses.dataclass(frozen=True)
class SafetensorsHeader:
    """Everything before the tensor data."""

    tensors: dict[str, StoredTensor]
    """By name, in the header's order."""
    metadata: dict[str, str]
    """The `__metadata__` of the file; empty where it has none."""


class _Failure(Exception):
    """A field and what is wrong with it; the path is added where it is known."""


def _fail(field: str, problem: str) -> NoReturn:
    raise _Failure(f"{field}: {problem}")


def parse_safetensors(data: mmap.mmap | bytes, path: str) -> SafetensorsHeader:
    """Parses and checks the header of a whole file. Tensor data is not looked at.

    Args:
      data: every byte of the file.
      path: as error messages show it.

    Raises:
      InputError: for anything but a well-formed header whose tensors fill the
        rest of the file, each with the bytes that its shape and type need.
    """
    try:
        return _parse(data)
    except _Failure as failure:
        raise InputError(f"{path}: {failure}") from None


def _parse(data: mmap.mmap | bytes) -> SafetensorsHeader:
    size = len(data)
    if size < 8:
        _fail("header length", f"needs 8 bytes, the file has {size}: truncated or not a safetensors file")
    length = int.from_bytes(data[:8], "little")
    if length < 2:
        _fail("header length", f"is {length}, an empty object has 2 bytes")
    if length > size - 8:
        _fail("header length", f"is {length}, the file has {size - 8} bytes after it: truncated or malformed")
    if length > MAX_HEADER:
        _fail(
            "header length", f"is {length}, at most {MAX_HEADER} are read (the format allows {_FORMAT_LIMIT})"
        )
    entries = _object(data[8 : 8 + length])
    metadata = _metadata(entries.pop("__metadata__", {}))
    begin = 8 + length
    tensors = {name: _tensor(name, entry, begin) for name, entry in entries.items()}
    _check_cover(tensors, begin, size)
    return SafetensorsHeader(tensors, metadata)


def _object(raw: bytes) -> dict[str, Any]:
    if raw[:1] != b"{":
        _fail("header", f"begins with {quote(raw[:8])}, not with '{{': not a safetensors file")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        _fail("header", f"is not valid UTF-8 at byte {error.start}")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _fail("header", f"is not valid JSON at character {error.pos}: {error.msg}")
    except RecursionError:
        _fail("header", "is nested too deeply")
    except ValueError:  # a number of thousands of digits
        _fail("header", "is not valid JSON: a number is too long")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                _fail("header", f"has {quote(name)} twice in one object")
            seen.add(name)
    return values


def _no_constant(name: str) -> NoReturn:
    _fail("header", f"is not valid JSON: {name}")


def _metadata(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        _fail("__metadata__", f"is {_kind(given)}, not an object")
    for key, value in given.items():
        if not isinstance(value, str):
            _fail("__metadata__", f"{quote(key)} is {_kind(value)}, not a string")
        _check_text("__metadata__", key)
        _check_text("__metadata__", value)
    return given


def _check_text(field: str, text: str) -> None:
    """Refuses what an escape can write and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        _fail(field, f"{quote(text)} has half a surrogate pair, which is not valid UTF-8")


def _tensor(name: str, entry: Any, begin: int) -> StoredTensor:
    if not name:
        _fail("tensor ''", "a name is empty")
    field = f"tensor {quote(name)}"
    if "\0" in name:
        _fail(field, "the name contains a NUL")
    _check_text(field, name)
    if not isinstance(entry, dict):
        _fail(field, f"is {_kind(entry)}, not an object")
    for key in _FIELDS:
        if key not in entry:
            _fail(field, f"{key} is missing")
    for key in entry:
        if key not in _FIELDS:
            _fail(field, f"has the field {quote(key)}, which the format does not know")
    dtype = entry["dtype"]
    if not isinstance(dtype, str):
        _fail(field, f"dtype is {_kind(dtype)}, not a string")
    if dtype not in DTYPE_BITS:
        _fail(field, f"has dtype {quote(dtype)}, which is unknown")
    if isinstance(entry["shape"], list) and len(entry["shape"]) > MAX_DIMS:
        _fail(field, f"has {len(entry['shape'])} dimensions, at most {MAX_DIMS} are allowed")
    shape = _integers(entry["shape"], field, "shape")
    # Python integers cannot wrap; numpy's can, also in front of an axis of length 0.
    if math.prod(max(axis, 1) for axis in shape) * 8 >= 1 << 63:
        _fail(field, f"has the shape {list(shape)}, more elements than can be counted")
    if isinstance(entry["data_offsets"], list) and len(entry["data_offsets"]) != 2:
        _fail(field, f"data_offsets has {len(entry['data_offsets'])} numbers, not 2")
    start, stop = _integers(entry["data_offsets"], field, "data_offsets")
    if start > stop:
        _fail(field, f"data_offsets begins at {start}, after its end {stop}")
    bits = math.prod(shape) * DTYPE_BITS[dtype]
    if bits % 8:
        _fail(field, f"has the shape {list(shape)} of {dtype}, which is not a whole number of bytes")
    if stop - start != bits // 8:
        _fail(field, f"has {stop - start} bytes, the shape {list(shape)} of {dtype} needs {bits // 8}")
    return StoredTensor(dtype, shape, begin + start, begin + stop)


def _integers(given: Any, field: str, key: str) -> tuple[int, ...]:
    if not isinstance(given, list):
        _fail(field, f"{key} is {_kind(given)}, not an array")
    for number in given:
        if not isinstance(number, int) or isinstance(number, bool):
            _fail(field, f"{key} has {_kind(number)}, not an integer")
        if not 0 <= number < 1 << 63:
            _fail(field, f"{key} has {_short(number)}, not from 0 to {(1 << 63) - 1}")
    return tuple(given)


def _short(number: int) -> str:
    """A number that may have thousands of digits."""
    return str(number) if abs(number) < 1 << 128 else f"a number of {number.bit_length()} bits"


def _check_cover(tensors: dict[str, StoredTensor], begin: int, size: int) -> None:
    """Tensors follow one another without gap and overlap, from the header to the end of the file."""
    names = sorted(tensors, key=lambda name: (tensors[name].start, tensors[name].stop))
    for name in names:
        if tensors[name].stop > size:
            tensor = tensors[name]
            _fail(
                f"tensor {quote(name)}",
                f"needs {tensor.nbytes} bytes at offset {tensor.start}, the file has "
                f"{max(0, size - tensor.start)} of them ({size} bytes in all): truncated or malformed",
            )
    end, last = begin, "the header"
    for name in names:
        tensor = tensors[name]
        if tensor.start != end:
            how = f"inside {last}" if tensor.start < end else f"and {last} ends at {end}: a hole"
            _fail(f"tensor {quote(name)}", f"starts at offset {tensor.start}, {how}")
        end, last = tensor.stop, f"tensor {quote(name)}"
    if end != size:
        _fail("data", f"{size - end} bytes follow {last}, which belong to no tensor")


def _kind(value: Any) -> str:
    """A JSON value for a message: what it is, and which one if that is short."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return f"the string {quote(value)}"
    if isinstance(value, bool):
        return str(value).lower()
    return _short(value) if isinstance(value, int) else str(value)
