"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path


@contextlib.contextmanager
def atomic_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A UTF-8 file for writing that takes its name only when the block ends well.

    It is opened beside its target at once, so that a folder that cannot be written is known before
    hours of work. An error or Ctrl-C inside leaves what was there before. A link stays a link. A
    device or a pipe cannot be replaced: it is written as it is.

    Raises:
      InputError: the file cannot be created, or its target is a folder.
    """
    target, name = Path(path), None
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "is a folder")
        if target.exists() and not target.is_file():
            descriptor = os.open(target, os.O_WRONLY)
        else:
            target = Path(os.path.realpath(target))
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{shown_path(path)}: cannot be written: {reason}") from None
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            if name is not None:
                os.fsync(descriptor)
        if name is not None:
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
    except BaseException:
        if name is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        raise


def _umask() -> int:
    """The process's mask of permissions: files made by mkstemp are private, records are not."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
