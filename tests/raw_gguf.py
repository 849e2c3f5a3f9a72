"""GGUF bytes from explicit fields, so that a test can write any malformed file."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10


def string(text: str | bytes, *, length: int | None = None) -> bytes:
    """A length-prefixed string; `length` lies about it."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def key(name: str | bytes, kind: int, payload: bytes) -> bytes:
    """A metadata entry with the value's raw bytes."""
    return string(name) + struct.pack("<I", kind) + payload


def text_key(name: str | bytes, value: str | bytes) -> bytes:
    """A string entry."""
    return key(name, STRING, string(value))


def u32_key(name: str, value: int) -> bytes:
    """An unsigned 32-bit entry."""
    return key(name, U32, struct.pack("<I", value))


def array_key(name: str, kind: int, length: int, payload: bytes = b"") -> bytes:
    """An array entry; `length` need not fit the payload."""
    return key(name, ARRAY, struct.pack("<IQ", kind, length) + payload)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor description as it is written, right or wrong."""

    name: str | bytes = "a"
    dims: Sequence[int] = (8, 4)
    kind: int = 0
    offset: int = 0
    dim_count: int | None = None

    def encoded(self) -> bytes:
        """Its bytes in the header."""
        count = len(self.dims) if self.dim_count is None else self.dim_count
        return (
            string(self.name)
            + struct.pack("<I", count)
            + struct.pack(f"<{len(self.dims)}Q", *self.dims)
            + struct.pack("<IQ", self.kind, self.offset)
        )


def build(
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    keys: Sequence[bytes] = (),
    tensors: Sequence[Tensor] = (),
    data: bytes = b"",
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; the counts follow the lists unless given."""
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    head += b"".join(keys) + b"".join(tensor.encoded() for tensor in tensors)
    if alignment:
        head += b"\0" * (-len(head) % alignment)
    return head + data
