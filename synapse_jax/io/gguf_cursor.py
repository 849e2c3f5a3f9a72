"""A bounds-checked walk over the bytes of a GGUF header."""

from __future__ import annotations

import mmap
import re
import struct

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io import gguf_types
from synapse_jax.io.quoting import quote

MAX_ARRAY = 1 << 21
"""Elements a metadata array may have. The largest real vocabularies and merge lists have half a million."""
MAX_STRINGS = 900_000
"""Strings that all arrays together may have. Gemma 4 has 777,050, with its merges."""
MAX_STRING = 1 << 24
"""Bytes a string may have: 16 MiB. In memory each may take four."""
MAX_HEADER = 28 << 20
"""Bytes before the tensor data: 28 MiB. Gemma's has 6.5 million; with merges it would be 16 million."""

_WINDOW = 1 << 20
"""Bytes of an array of strings that are looked at together."""
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_INVALID = re.compile("[\udc80-\udcff]").search
"""Finds what `surrogateescape` makes of a byte that is not UTF-8; valid UTF-8 never decodes to it."""


class Cursor:
    """A position in a file's bytes that never runs past the end.

    Every count and length is compared with the bytes that remain before
    anything is allocated or looped over.

    Args:
      data: the bytes; a slice of them is a copy.
      path: as error messages show it.
    """

    def __init__(self, data: mmap.mmap | bytes, path: str):
        self.data = data
        self.path = path
        self.size = len(data)
        self.position = 0
        self._strings_left = MAX_STRINGS

    def fail(self, field: str, problem: str) -> InputError:
        """An InputError for a field of this file; the caller raises it."""
        return InputError(f"{self.path}: {field}: {problem}")

    def need(self, count: int, field: str) -> int:
        """Reserves `count` bytes and returns where they start."""
        start = self.position
        if count > self.size - start:
            raise self.fail(
                field,
                f"needs {count} bytes at offset {start}, the file has {self.size - start} "
                f"left of {self.size}: truncated or malformed",
            )
        if start + count > MAX_HEADER:
            raise self.fail(field, f"ends at byte {start + count}, a header may have {MAX_HEADER} bytes")
        self.position = start + count
        return start

    def u32(self, field: str) -> int:
        """An unsigned 32-bit number."""
        return _U32.unpack_from(self.data, self.need(4, field))[0]

    def u64(self, field: str) -> int:
        """An unsigned 64-bit number."""
        return _U64.unpack_from(self.data, self.need(8, field))[0]

    def raw_string(self, field: str, longest: int) -> bytes:
        """A length-prefixed string of at most `longest` bytes."""
        length = self.u64(f"{field} length")
        if length > longest:
            raise self.fail(field, f"is {length} bytes long, at most {longest} are allowed")
        start = self.need(length, field)
        return self.data[start : start + length]

    def name(self, field: str, longest: int) -> str:
        """A key or tensor name: not empty, UTF-8, without NUL, at most `longest` bytes."""
        raw = self.raw_string(field, longest)
        if not raw:
            raise self.fail(field, "is empty")
        if b"\0" in raw:
            raise self.fail(field, f"{quote(raw)} contains a NUL byte")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(field, f"{quote(raw)} is not valid UTF-8 at byte {error.start}") from None

    def value(self, kind: int, field: str) -> tuple[object, str]:
        """A metadata value and the name of its type; see `GgufFile.metadata` for the Python types."""
        if kind == gguf_types.STRING:
            return text_or_bytes(self.raw_string(field, MAX_STRING)), "string"
        if kind == gguf_types.ARRAY:
            return self._array(field)
        scalar = self._scalar_type(kind, field)
        array = self._numbers(scalar, 1, field)
        return array[0].item(), scalar.name

    def _scalar_type(self, kind: int, field: str) -> gguf_types.ValueType:
        if kind not in gguf_types.SCALARS:
            raise self.fail(field, f"value type {kind} is unknown (0 to 12 are known)")
        return gguf_types.SCALARS[kind]

    def _array(self, field: str) -> tuple[object, str]:
        kind = self.u32(f"{field} element type")
        length = self.u64(f"{field} array length")
        if kind == gguf_types.ARRAY:
            raise self.fail(field, "is an array of arrays, which GGUF readers do not support")
        if length > MAX_ARRAY:
            raise self.fail(field, f"has {length} array elements, at most {MAX_ARRAY} are allowed")
        if kind == gguf_types.STRING:
            return self._strings(length, field), "array of string"
        scalar = self._scalar_type(kind, field)
        array = self._numbers(scalar, length, field)
        array.flags.writeable = False
        return array, f"array of {scalar.name}"

    def _numbers(self, scalar: gguf_types.ValueType, count: int, field: str) -> np.ndarray:
        start = self.need(count * scalar.dtype.itemsize, field)
        # A copy: the values outlive the mapping, and the file's bytes may be unaligned.
        array = np.frombuffer(self.data, scalar.dtype, count, start).copy()
        if scalar is gguf_types.SCALARS[gguf_types.BOOL]:
            if count and int(array.max()) > 1:
                raise self.fail(field, f"bool has the value {int(array.max())}, only 0 and 1 are allowed")
            return array.astype(np.bool_)
        return array

    def _strings(self, count: int, field: str) -> list[str | bytes]:
        if count * 8 > self.size - self.position:
            raise self.fail(
                field,
                f"has {count} strings, which need {count * 8} bytes or more; the file has "
                f"{self.size - self.position} left of {self.size}: truncated or malformed",
            )
        if count > self._strings_left:
            raise self.fail(
                field,
                f"has {count} strings, the arrays before it {MAX_STRINGS - self._strings_left}, "
                f"at most {MAX_STRINGS} are allowed together",
            )
        self._strings_left -= count
        out: list[str | bytes] = []
        while len(out) < count:
            # A copy: a slice of bytes costs half of what one of a mapping costs.
            window = self.data[self.position : self.position + _WINDOW]
            self._release()
            ends = _string_ends(window, count - len(out))
            if ends:
                self.need(ends[-1], field)
                out += _split(window, ends)
            else:  # longer than a window, or cut
                out.append(
                    text_or_bytes(self.raw_string(f"{field} string {len(out)} of {count}", MAX_STRING))
                )
        return out

    def _release(self) -> None:
        """Lets the system drop the pages before the position: what was read of them is a copy."""
        if isinstance(self.data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            pages = self.position // mmap.PAGESIZE
            if pages:
                self.data.madvise(mmap.MADV_DONTNEED, 0, pages * mmap.PAGESIZE)


def _string_ends(window: bytes, count: int) -> list[int]:
    """Where each of the first strings ends, as far as they lie in the window, at most `count`."""
    # A vocabulary has hundreds of thousands of entries: locals and no calls per field in this loop.
    size, unpack, position = len(window), _U64.unpack_from, 0
    ends: list[int] = []
    add = ends.append
    for _ in range(count):
        start = position + 8
        if start > size:
            break
        position = start + unpack(window, position)[0]
        if position > size:
            break
        add(position)
    return ends


def _split(window: bytes, ends: list[int]) -> list[str | bytes]:
    """The strings of a window, decoded together where each of them is UTF-8 without NUL.

    Of each length the last byte, a zero, is left as a separator. A separator is
    ASCII, so the whole is valid UTF-8 exactly if each string is.
    """
    starts = np.array([0, *ends[:-1]])
    keep = np.ones(ends[-1], np.bool_)
    keep[starts[:, None] + np.arange(7)] = False
    joined = np.frombuffer(window, np.uint8, ends[-1])[keep].tobytes()
    if joined.count(0) == len(ends):
        text = joined.decode("utf-8", "surrogateescape")
        texts = text.split("\0")[1:]
        if not _INVALID(text):
            return texts  # type: ignore[return-value]
        stored = joined.split(b"\0")[1:]
    else:
        stored = [window[start + 8 : end] for start, end in zip(starts.tolist(), ends, strict=True)]
        texts = [raw.decode("utf-8", "surrogateescape") for raw in stored]
    return [
        text if text.isascii() or not _INVALID(text) else raw for raw, text in zip(stored, texts, strict=True)
    ]


def text_or_bytes(raw: bytes) -> str | bytes:
    """UTF-8 text as `str`, anything else as the `bytes` it is."""
    # Not by catching an exception: a file may hold a million strings that are not UTF-8.
    text = raw.decode("utf-8", "surrogateescape")
    return raw if _INVALID(text) else text
