"""GGUF files: metadata and tensors as host data."""

from __future__ import annotations

import math
import os
import pathlib

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.gguf_header import Header, TensorInfo, parse_header
from synapse_jax.io.gguf_types import TensorType
from synapse_jax.io.mapped_file import MappedFile
from synapse_jax.io.quoting import quote

_CHUNK = 1 << 18
"""Elements dequantized at a time: intermediate arrays of a few megabytes, whatever the tensor's size."""


class GgufFile:
    """An open GGUF file whose header has been checked.

    Attributes:
      path: the file.
      version: 2 or 3.
      metadata: values by key: `int`, `float`, `bool`, `str`, a read-only numpy
        array for an array of numbers, a `list` for an array of strings. A string
        value or array entry that is not valid UTF-8 is kept as `bytes`, any other
        is a `str`. Keys are always `str`.
      value_types: the stored type of each value, for example `uint32`.
      tensors: descriptions by name, in the file's order.
    """

    def __init__(self, file: MappedFile, header: Header):
        self.path: pathlib.Path = file.path
        self.version = header.version
        self.metadata = header.metadata
        self.value_types = header.value_types
        self.tensors: dict[str, TensorInfo] = header.tensors
        self._file = file

    def __enter__(self) -> GgufFile:
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
        """Refuses a tensor whose type cannot be turned into float32.

        Raises:
          InputError: if it is missing or its type is one that `gguf` cannot dequantize.
        """
        info = self._tensor(name)
        if not info.type.readable:
            raise self.fail(
                f"tensor {quote(name)}",
                f"has type {info.type_name} (number {info.type.number}), which cannot be read as float32",
            )

    def read(self, name: str, first_row: int = 0, rows: int | None = None) -> np.ndarray:
        """A tensor's values, or those of a range of its rows.

        Dequantized in pieces: beside the result only a few megabytes are in use,
        and the file's pages are let go afterwards.

        Args:
          name: as the file names it.
          first_row: where the range begins on the slowest axis.
          rows: how many rows; None means all that are left.

        Returns:
          A new float32 array of the tensor's shape, slowest axis first, with the rows of the range.

        Raises:
          InputError: as `require_readable`; or the file has become shorter since it was opened.
          ValueError: if the file is closed, or has no such rows.
        """
        self.require_readable(name)
        info = self.tensors[name]
        shape, start, nbytes = info.shape, info.offset, info.nbytes
        if first_row or rows is not None:
            rows = shape[0] - first_row if rows is None else rows
            if len(shape) < 2 or not 0 <= first_row <= first_row + rows <= shape[0]:
                raise ValueError(
                    f"tensor {name} of shape {shape} has no rows {first_row} … {first_row + rows}"
                )
            # A row is whole blocks, so a range of rows is a range of bytes.
            shape = (rows, *shape[1:])
            start += info.type.row_bytes(first_row * math.prod(shape[1:]))
            nbytes = info.type.row_bytes(math.prod(shape))
        raw = self._file.view(start, nbytes, f"tensor {quote(name)}")
        if info.type_name == "F32":
            values = raw.view("<f4").astype(np.float32)
        else:
            values = _dequantize(raw, info.type, math.prod(shape))
        self._file.release(start, nbytes)
        return values.reshape(shape)

    def _tensor(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise self.fail(f"tensor {quote(name)}", f"is missing ({len(self.tensors)} tensors are there)")
        return self.tensors[name]

    def optional_int(self, key: str) -> int | None:
        """An integer of any stored width, or None if the key is absent; InputError for another type."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong_type(key, "an integer")
        return value

    def require_int(self, key: str) -> int:
        """An integer of any stored width; InputError if it is absent or of another type."""
        value = self.optional_int(key)
        if value is None:
            raise self._missing(key)
        return value

    def optional_float(self, key: str) -> float | None:
        """A finite float, or None if the key is absent; InputError for another type, NaN or infinity."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, float):
            raise self._wrong_type(key, "a float")
        if not math.isfinite(value):
            raise self.fail(key, f"is {value}, not a finite number")
        return value

    def require_float(self, key: str) -> float:
        """A finite float; InputError if it is absent, of another type, NaN or infinite."""
        value = self.optional_float(key)
        if value is None:
            raise self._missing(key)
        return value

    def optional_bool(self, key: str) -> bool | None:
        """A bool, or None if the key is absent; InputError for another type."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, bool):
            raise self._wrong_type(key, "a bool")
        return value

    def optional_text(self, key: str) -> str | None:
        """A UTF-8 string, or None if the key is absent; InputError for another type or other bytes."""
        value = self.metadata.get(key)
        if value is None:
            return None
        if isinstance(value, bytes):
            raise self.fail(key, f"{quote(value)} is not valid UTF-8")
        if not isinstance(value, str):
            raise self._wrong_type(key, "a string")
        return value

    def require_text(self, key: str) -> str:
        """A UTF-8 string; InputError if it is absent, of another type or other bytes."""
        value = self.optional_text(key)
        if value is None:
            raise self._missing(key)
        return value

    def _missing(self, key: str) -> InputError:
        return self.fail(key, "is missing from the metadata")

    def _wrong_type(self, key: str, wanted: str) -> InputError:
        return self.fail(key, f"has type {self.value_types[key]}, not {wanted}")


def open_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Maps a GGUF file and checks its whole header.

    Args:
      path: a regular file; see `MappedFile` about one that becomes shorter.

    Raises:
      InputError: if it is absent, not a regular file, empty, unreadable, or not
        a well-formed file; see `gguf_header.parse_header`.
    """
    file = MappedFile(path)
    try:
        header = parse_header(file.data, file.shown)
    except InputError:
        file.close()
        raise
    return GgufFile(file, header)


def _dequantize(raw: np.ndarray, stored: TensorType, elements: int) -> np.ndarray:
    """All elements as a flat float32 array; blocks are independent, so pieces give the same bits."""
    import gguf  # 0.2 s to import, and only reading weights needs it

    kind = gguf.GGMLQuantizationType(stored.number)
    out = np.empty(elements, np.float32)
    step = _CHUNK // stored.block * stored.block
    for start in range(0, elements, step):
        stop = min(start + step, elements)
        piece = raw[stored.row_bytes(start) : stored.row_bytes(stop)]
        # A scale that is infinite or NaN gives non-finite weights, not a warning.
        with np.errstate(invalid="ignore", over="ignore"):
            out[start:stop] = gguf.quants.dequantize(piece.reshape(1, -1), kind).reshape(-1)
    return out
