"""safetensors files that a hostile or broken writer could make, as data: one line a case.

`python -m tests.hostile_safetensors` prints the table of what is accepted, for the documentation.
"""
# ruff: noqa: E501 -- one line a case

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """One file and what must come of it."""

    name: str
    content: bytes
    words: tuple[str, ...]
    """Parts of the refusal; of one of `inspect`'s problems for an accepted file."""
    note: str = ""
    """Only of an accepted file: how it is read."""


def build(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A whole file; the header is an object to encode or the bytes of one, `length` lies about it."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(
    dtype: Any = "F32", shape: Any = (2, 3), start: Any = 0, stop: Any = 24, **more: Any
) -> dict[str, Any]:
    """A tensor's entry, right or wrong; None leaves a field out."""
    fields = {"dtype": dtype, "shape": shape, "data_offsets": [start, stop], **more}
    return {key: value for key, value in fields.items() if value is not None}


def refused(name: str, header: Any, data: bytes, *words: str, length: int | None = None) -> Case:
    """A file that is refused."""
    return Case(name, build(header, data, length=length), words)


def accepted(name: str, header: Any, data: bytes, note: str, *words: str) -> Case:
    """A file that is taken."""
    return Case(name, build(header, data), words, note)


DATA = np.arange(6, dtype="<f4").tobytes()
A = {"a": entry()}
WHOLE = build(A, DATA)
F8 = entry("F8_E4M3", [4], 0, 4)

# fmt: off
CASES = [
    # The length of the header.
    Case("empty file", b"", ("empty",)),
    Case("7 bytes", WHOLE[:7], ("header length", "7", "truncated")),
    Case("8 bytes", WHOLE[:8], ("header length", "0 bytes after it", "truncated")),
    Case("header cut", WHOLE[:20], ("header length", "12 bytes after it", "truncated")),
    refused("header length 0", A, DATA, "header length", "is 0", length=0),
    refused("header length 1", A, DATA, "header length", "is 1", length=1),
    refused("header length one above the file", A, DATA, "header length", "truncated", length=len(WHOLE) - 7),
    refused("header length 2^63", A, DATA, "header length", str(2**63), length=2**63),
    refused("header length 2^64-1", A, DATA, "header length", str(2**64 - 1), length=2**64 - 1),
    refused("header length above 4 MiB", b"{" + b" " * 2**22 + b"}", b"", "header length", str(2**22 + 2), str(2**22), "100000000"),
    refused("header length one short", A, DATA, "header", "JSON", length=len(WHOLE) - 8 - len(DATA) - 1),
    refused("header length one long", A, b"x" + DATA, "header", "JSON", length=len(WHOLE) - 8 - len(DATA) + 1),
    # The JSON.
    refused("GGUF", b"GGUF\3\0\0\0", DATA, "header", "b'GGUF"),
    refused("array", b"[1, 2]", DATA, "header", "b'[1, 2]'"),
    refused("space before the object", b" {}", b"", "header", "b' {}'"),
    refused("not UTF-8", b'{"\xff": 1}', DATA, "header", "UTF-8", "byte 2"),
    refused("two objects", b"{}{}", b"", "header", "JSON", "character 2"),
    refused("zeros after the object", b"{}\0\0", b"", "header", "JSON", "character 2"),
    refused("open object", b'{"a": {', DATA, "header", "JSON"),
    refused("trailing comma", b'{"a": 1,}', DATA, "header", "JSON"),
    refused("NaN", b'{"a": NaN}', DATA, "header", "NaN"),
    refused("a number of 5000 digits", b'{"a": ' + b"9" * 5000 + b"}", DATA, "header", "too long"),
    refused("nested 100000 deep", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", DATA, "header", "too deeply"),
    refused("objects nested 100000 deep", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, DATA, "header", "too deeply"),
    refused("4 MiB of zeros in a shape", b'{"a": {"dtype": "F32", "data_offsets": [0, 24], "shape": [' + b"0," * (2**21 - 100) + b"0]}}", DATA, "tensor 'a'", "dimensions"),
    refused("4 MiB of names", b"{" + b",".join(b'"%06x":0' % i for i in range(380_000)) + b"}", DATA, "tensor '000000'", "not an object"),
    refused("name twice", json.dumps({**A, "b": entry()}).replace('"b"', '"a"').encode(), DATA, "header", "'a'", "twice"),
    refused("field twice", b'{"a": {"dtype": "F32", "dtype": "F16", "shape": [], "data_offsets": [0, 24]}}', DATA, "header", "'dtype'", "twice"),
    # Metadata.
    refused("metadata null", {**A, "__metadata__": None}, DATA, "__metadata__", "null"),
    refused("metadata a list", {**A, "__metadata__": ["a"]}, DATA, "__metadata__", "an array"),
    refused("metadata of numbers", {**A, "__metadata__": {"k": 1}}, DATA, "__metadata__", "'k'", "1, not a string"),
    refused("metadata nested", {**A, "__metadata__": {"k": {"l": "m"}}}, DATA, "__metadata__", "'k'", "an object"),
    refused("metadata of half a pair", b'{"__metadata__": {"k": "\\ud83d"}}', b"", "__metadata__", r"\ud83d"),
    # Names and entries.
    refused("name empty", {"": entry()}, DATA, "tensor ''", "empty"),
    refused("name NUL", {"a\0b": entry()}, DATA, r"tensor 'a\x00b'", "NUL"),
    refused("name of half a pair", b'{"\\ud83d": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}}', DATA, r"\ud83d", "UTF-8"),
    refused("entry null", {"a": None}, DATA, "tensor 'a'", "null"),
    refused("entry a number", {"a": 5}, DATA, "tensor 'a'", "is 5"),
    refused("no dtype", {"a": entry(dtype=None)}, DATA, "tensor 'a'", "dtype is missing"),
    refused("no shape", {"a": entry(shape=None)}, DATA, "tensor 'a'", "shape is missing"),
    refused("no offsets", {"a": entry(data_offsets=None)}, DATA, "tensor 'a'", "data_offsets is missing"),
    refused("another field", {"a": entry(stride=[3, 1])}, DATA, "tensor 'a'", "'stride'"),
    refused("dtype unknown", {"a": entry("F31")}, DATA, "tensor 'a'", "'F31'"),
    refused("dtype in small letters", {"a": entry("f32")}, DATA, "tensor 'a'", "'f32'"),
    refused("dtype a number", {"a": entry(4)}, DATA, "tensor 'a'", "dtype is 4"),
    refused("dtype a list", {"a": entry(["F32"])}, DATA, "tensor 'a'", "dtype is an array"),
    # Shapes.
    refused("shape a number", {"a": entry(shape=6)}, DATA, "tensor 'a'", "shape is 6"),
    refused("shape -1", {"a": entry(shape=[-1, -6])}, DATA, "tensor 'a'", "shape has -1"),
    refused("shape a fraction", {"a": entry(shape=[2.0, 3])}, DATA, "tensor 'a'", "shape has 2.0"),
    refused("shape true", {"a": entry(shape=[True, 6])}, DATA, "tensor 'a'", "shape has true"),
    refused("shape text", {"a": entry(shape=["6"])}, DATA, "tensor 'a'", "shape has the string '6'"),
    refused("shape of 9 axes", {"a": entry(shape=[1] * 8 + [6])}, DATA, "tensor 'a'", "9 dimensions"),
    refused("shape 2^63", {"a": entry(shape=[2**63])}, DATA, "tensor 'a'", str(2**63)),
    refused("shape of 10000 bits", b'{"a": {"dtype": "F32", "shape": [%d], "data_offsets": [0, 24]}}' % 2**10_000, DATA, "tensor 'a'", "10001 bits"),
    refused("shape that wraps to 6", {"a": entry(shape=[2**32, 2**32 + 1])}, DATA, "tensor 'a'", str(2**32)),
    refused("shape that wraps to 0", {"a": entry(shape=[2**32, 2**32], stop=0)}, b"", "tensor 'a'", "more elements"),
    refused("shape that wraps beside 0", {"a": entry(shape=[0, 2**62, 2**62], stop=0)}, b"", "tensor 'a'", "more elements"),
    refused("shape of more bytes", {"a": entry(shape=[2, 4])}, DATA, "tensor 'a'", "24 bytes", "needs 32"),
    refused("shape of fewer bytes", {"a": entry(shape=[])}, DATA, "tensor 'a'", "24 bytes", "needs 4"),
    refused("dtype of fewer bytes", {"a": entry("BF16")}, DATA, "tensor 'a'", "24 bytes", "needs 12"),
    refused("half a byte", {"a": entry("F4", [3], 0, 2)}, b"ab", "tensor 'a'", "whole number of bytes"),
    # Offsets.
    refused("one offset", {"a": entry(data_offsets=[24])}, DATA, "tensor 'a'", "data_offsets has 1 numbers"),
    refused("three offsets", {"a": entry(data_offsets=[0, 24, 24])}, DATA, "tensor 'a'", "data_offsets has 3 numbers"),
    refused("offsets text", {"a": entry(start="0")}, DATA, "tensor 'a'", "data_offsets has the string '0'"),
    refused("offsets fractions", {"a": entry(stop=24.0)}, DATA, "tensor 'a'", "data_offsets has 24.0"),
    refused("offsets true", {"a": entry("U8", [1], False, True)}, b"x", "tensor 'a'", "data_offsets has false"),
    refused("offset -1", {"a": entry(start=-1, stop=23)}, DATA, "tensor 'a'", "data_offsets has -1"),
    refused("offsets swapped", {"a": entry(start=24, stop=0)}, DATA, "tensor 'a'", "begins at 24", "end 0"),
    refused("offsets at 2^62", {"a": entry(start=2**62, stop=2**62 + 24)}, DATA, "tensor 'a'", "truncated"),
    refused("offsets at 2^64-24", {"a": entry(start=2**64 - 24, stop=2**64)}, DATA, "tensor 'a'", str(2**64 - 24)),
    refused("overlap", {**A, "b": entry(start=20, stop=44)}, DATA * 2, "tensor 'b'", "inside tensor 'a'"),
    refused("same place", {**A, "b": entry()}, DATA, "tensor 'b'", "inside tensor 'a'"),
    refused("hole between tensors", {**A, "b": entry(start=28, stop=52)}, DATA * 3, "tensor 'b'", "hole"),
    refused("hole before the first", {"a": entry(start=4, stop=28)}, DATA * 2, "tensor 'a'", "hole"),
    refused("trailing byte", A, DATA + b"x", "data", "1 bytes follow tensor 'a'"),
    refused("bytes and no tensors", {}, DATA, "data", "24 bytes follow the header"),
    Case("one byte short", WHOLE[:-1], ("tensor 'a'", "24 bytes", "23 of them", "truncated")),
    Case("no data", WHOLE[:-24], ("tensor 'a'", "24 bytes", "0 of them", "truncated")),
    # Accepted.
    accepted("no tensors", {}, b"", "a file without tensors"),
    accepted("empty metadata", {**A, "__metadata__": {}}, DATA, "none"),
    accepted("spaces after the object", json.dumps(A).encode() + b"   \n", DATA, "writers pad"),
    accepted("tensors in another order than their data", {"b": entry("F32", [1], 24, 28), **A}, DATA + bytes(4), "offsets decide"),
    accepted("single number", {"a": entry("F32", [], 0, 4)}, bytes(4), "shape ()"),
    accepted("axis of length 0", {"a": entry("F32", [0, 3], 0, 0), "b": entry("F32", [0], 0, 0)}, b"", "no elements"),
    accepted("name with a newline and an escape", {"a\n\x1b[2J": entry()}, DATA, "shown escaped"),
    accepted("data at an odd address", {"a": entry("U8", [1], 0, 1), "b": entry("F32", [6], 1, 25)}, b"x" + DATA, "read all the same", "U8"),
    accepted("type without a reader", {"a": F8}, b"abcd", "shown; refused when it is read (all but F32, F16, BF16)", "F8_E4M3", "'a'"),
]
# fmt: on

if __name__ == "__main__":
    print("| what | how it is read |\n|---|---|")
    print("\n".join(f"| {case.name} | {case.note} |" for case in CASES if case.note))
