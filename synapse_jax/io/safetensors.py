"""safetensors files: names, shapes and weights as host data. Only the header decides; no library is used."""

from __future__ import annotations

import math
import os
import pathlib

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.mapped_file import MappedFile
from synapse_jax.io.quoting import quote
from synapse_jax.io.safetensors_header import (
    DTYPE_BITS,
    READABLE,
    SafetensorsHeader,
    StoredTensor,
    parse_safetensors,
)

_PIECE = 1 << 22
"""Bytes compared at a time."""


class SafetensorsFile:
    """An open safetensors file whose header has been checked.

    Attributes:
      path: the file.
      tensors: where each tensor lies, by name, in the header's order.
      metadata: the file's own strings by key; most writers leave only `format`.
    """

    def __init__(self, file: MappedFile, header: SafetensorsHeader):
        self.path: pathlib.Path = file.path
        self.tensors: dict[str, StoredTensor] = header.tensors
        self.metadata = header.metadata
        self._file = file

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file; arrays that `read` gave out stay."""
        self._file.close()

    def fail(self, field: str, problem: str) -> InputError:
        """An InputError that names this file and a field of it; the caller raises it."""
        return self._file.fail(field, problem)

    def require_readable(self, name: str) -> None:
        """Refuses a tensor that cannot be turned into float32.

        Raises:
          InputError: if it is missing or of another type than F32, F16 and BF16.
        """
        if name not in self.tensors:
            raise self.fail(f"tensor {quote(name)}", f"is missing ({len(self.tensors)} tensors are there)")
        dtype = self.tensors[name].dtype
        if dtype not in READABLE:
            raise self.fail(
                f"tensor {quote(name)}",
                f"has dtype {dtype}, which cannot be read as float32; {', '.join(READABLE)} can",
            )

    def read(self, name: str, first_row: int = 0, rows: int | None = None) -> np.ndarray:
        """A tensor's values, or those of a range of its rows.

        Beside the result little memory is in use, and the file's pages are let go.

        Args:
          name: as the file names it.
          first_row: where the range begins on the slowest axis.
          rows: how many rows; None means all that are left.

        Returns:
          A new float32 array of the tensor's shape, with the rows of the range. Every value of the three
          types is exact in it.

        Raises:
          InputError: as `require_readable`; or the file has become shorter since it was opened.
          ValueError: if the file is closed, or has no such rows.
        """
        self.require_readable(name)
        tensor = self.tensors[name]
        shape, start, nbytes = tensor.shape, tensor.start, tensor.nbytes
        if first_row or rows is not None:
            rows = shape[0] - first_row if rows is None else rows
            if not 0 <= first_row <= first_row + rows <= shape[0]:
                raise ValueError(
                    f"tensor {name} of shape {shape} has no rows {first_row} … {first_row + rows}"
                )
            row_bytes = math.prod(shape[1:]) * DTYPE_BITS[tensor.dtype] // 8
            shape, start, nbytes = (rows, *shape[1:]), start + first_row * row_bytes, rows * row_bytes
        raw = self._file.view(start, nbytes, f"tensor {quote(name)}")
        if tensor.dtype == "BF16":
            # The upper half of a float32.
            bits = raw.view("<u2").astype(np.uint32)
            bits <<= 16
            values = bits.view(np.float32)
        else:
            # A signalling NaN becomes a quiet one, without a warning.
            with np.errstate(invalid="ignore"):
                values = raw.view("<f4" if tensor.dtype == "F32" else "<f2").astype(np.float32)
        self._file.release(start, nbytes)
        return values.reshape(shape)

    def same_bytes(self, name: str, other: SafetensorsFile, other_name: str) -> bool:
        """Whether a tensor has the bytes of another one of the same size, which may be in another file."""
        one, two = self.tensors[name], other.tensors[other_name]
        for at in range(0, one.nbytes, _PIECE):
            nbytes = min(_PIECE, one.nbytes - at)
            a = self._file.view(one.start + at, nbytes, f"tensor {quote(name)}")
            b = other._file.view(two.start + at, nbytes, f"tensor {quote(other_name)}")
            same = np.array_equal(a, b)
            self._file.release(one.start + at, nbytes)
            other._file.release(two.start + at, nbytes)
            if not same:
                return False
        return True


def open_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile:
    """Maps a safetensors file and checks its whole header.

    Args:
      path: a regular file; see `MappedFile` about one that becomes shorter.

    Raises:
      InputError: if it is absent, not a regular file, empty, unreadable, or not
        a well-formed file; see `safetensors_header.parse_safetensors`.
    """
    file = MappedFile(path)
    try:
        header = parse_safetensors(file.data, file.shown)
    except InputError:
        file.close()
        raise
    return SafetensorsFile(file, header)
