"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
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
    target, descriptor = Path(path), None
    with _naming(path):
        if target.exists() and not target.is_file() and not target.is_dir():
            descriptor = os.open(target, os.O_WRONLY)
    if descriptor is not None:
        with open(descriptor, "w", encoding="utf-8", newline="") as device:
            yield device
        return
    with atomic_path(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        yield file


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """As `atomic_text`, for what opens files itself: an empty file beside the target, to be written.

    Raises:
      InputError: the file cannot be created, or its target is a folder, a device or a pipe.
    """
    with _naming(path):
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(0, "is a folder")
        if target.exists() and not target.is_file():
            raise OSError(0, "is a device or a pipe")
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        os.close(descriptor)
    part = Path(name)
    try:
        yield part
        with open(part, "r+b") as file:
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty folder beside its target, to be filled, that takes the target's name when the block ends well.

    Nothing is ever replaced: a folder may hold what is not to be lost.

    Raises:
      InputError: the folder cannot be created, or its target is there and is no empty folder.
    """
    with _naming(path):
        target = Path(os.path.realpath(path))
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise FileExistsError(0, "it is there already, and is no empty folder")
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    try:
        yield part
        for file in part.rglob("*"):
            if file.is_file():
                with open(file, "r+b") as written:
                    os.fsync(written.fileno())
        part.chmod(0o777 & ~_umask())
        part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Puts the path before what the system says against it."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{shown_path(path)}: cannot be written: {reason}") from None


def _umask() -> int:
    """The process's mask of permissions: files made by mkstemp are private, records are not."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
