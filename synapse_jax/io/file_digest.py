"""SHA-256 of what a model is read from: one file, or several by name."""

from __future__ import annotations

import hashlib
import pathlib
import threading
from collections.abc import Callable, Mapping

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path


def file_sha256(path: pathlib.Path) -> str:
    """SHA-256 of a whole file in hex; InputError if it cannot be read."""
    digest = hashlib.sha256()
    # Large pieces: a thread that hashes beside other work waits for the interpreter after each of them.
    buffer = memoryview(bytearray(1 << 23))
    try:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
            return digest.hexdigest()
    except OSError as error:
        raise InputError(f"{shown_path(path)}: cannot be read: {error.strerror or error}") from None


def files_sha256(files: Mapping[str, pathlib.Path]) -> str:
    """One digest of several files: SHA-256 of a line `NAME SHA256` for each, in the order of the names.

    Args:
      files: paths by the name that counts, which has no folder of the machine in it.

    Raises:
      InputError: one of them cannot be read.
    """
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {file_sha256(files[name])}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class Digest(threading.Thread):
    """A digest that is computed beside other work: hashing leaves the interpreter free.

    Args:
      compute: gives it in hex; what it raises as InputError is raised by `result`.
    """

    def __init__(self, compute: Callable[[], str]):
        super().__init__(daemon=True)
        self._compute = compute
        self._hex = ""
        self._error: InputError | None = None
        self.start()

    def run(self) -> None:
        """Reads the files."""
        try:
            self._hex = self._compute()
        except InputError as error:
            self._error = error

    def result(self) -> str:
        """Waits for the digest."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._hex
