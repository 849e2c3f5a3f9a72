"""A file's bytes, mapped and never read past the end."""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path


class MappedFile:
    """A regular file that is mapped for reading.

    Args:
      path: the file. It must not become shorter while a view of it is in use;
        before each view its size is asked for again.

    Raises:
      InputError: if it is absent, not a regular file, empty or unreadable.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        self.shown = shown_path(path)
        """The path as messages show it."""
        # Asked before opening: to open a pipe would wait for its writer.
        if not self.path.is_file():
            problem = "not a regular file" if self.path.exists() else "no such file"
            raise InputError(f"{self.shown}: {problem}")
        try:
            with open(path, "rb") as file:
                # An empty file cannot be mapped.
                if os.fstat(file.fileno()).st_size == 0:
                    raise InputError(f"{self.shown}: the file is empty")
                self._data: mmap.mmap | None = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(f"{self.shown}: cannot be read: {error.strerror or error}") from None

    @property
    def data(self) -> mmap.mmap:
        """Every byte; a slice is a copy. ValueError if the file is closed."""
        if self._data is None:
            raise ValueError(f"{self.shown} is closed")
        return self._data

    def view(self, offset: int, nbytes: int, field: str) -> np.ndarray:
        """A part of the file, as uint8, for as long as the file is not cut.

        Args:
          offset: in bytes.
          nbytes: that the header promised; the file had them when it was opened.
          field: what they are, for the message.

        Raises:
          InputError: the file has become shorter since it was opened.
          ValueError: if the file is closed.
        """
        # Bytes of a mapping that the file no longer has would end the process with a signal.
        size = self.data.size()
        if offset + nbytes > size:
            raise self.fail(
                field,
                f"needs {nbytes} bytes at offset {offset}, the file has only {size} bytes now: "
                "it was cut after it was opened",
            )
        return np.frombuffer(self.data, np.uint8, nbytes, offset)

    def release(self, offset: int, nbytes: int) -> None:
        """Lets the system drop a part's pages from this process; reading it again reads the file again."""
        if self._data is not None and nbytes and hasattr(mmap, "MADV_DONTNEED"):
            start = offset // mmap.PAGESIZE * mmap.PAGESIZE
            self._data.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)

    def close(self) -> None:
        """Lets go of the mapping; views keep theirs alive and stay valid."""
        data, self._data = self._data, None
        if data is not None:
            # While a view is alive the mapping stays; it goes with the last one.
            with contextlib.suppress(BufferError):
                data.close()

    def fail(self, field: str, problem: str) -> InputError:
        """An InputError that names this file and a field of it; the caller raises it."""
        return InputError(f"{self.shown}: {field}: {problem}")
