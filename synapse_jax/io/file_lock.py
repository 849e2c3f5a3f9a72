"""A lock on a file that one process writes for long."""

from __future__ import annotations

import contextlib
from typing import IO, Any

from synapse_jax.errors import InputError


def lock_file(file: IO[Any], shown: str) -> None:
    """Keeps a second run away from an open file, where the system can; a lock ends with its process.

    Args:
        file: closed if it cannot be locked.
        shown: its name in messages.

    Raises:
        InputError: another process has locked it.
    """
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            is_held = isinstance(error, BlockingIOError)
            reason = "another run is writing it" if is_held else f"cannot be locked: {error.strerror}"
            raise InputError(f"{shown}: {reason}") from None
