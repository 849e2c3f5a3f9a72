"""Text files as they are: bytes on disk, strict UTF-8, no locale and no newline translation."""

from __future__ import annotations

import os
from pathlib import Path

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path


def read_text(path: str | os.PathLike[str]) -> str:
    """A file's text. A byte-order mark, NUL and CR LF stay in it, as other engines see them.

    Raises:
      InputError: the file cannot be read, or is not UTF-8; the message names
        the offset of the first bad byte.
    """
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # utf-16 and utf-32 files begin with their mark, or have NUL in every other byte.
        hint = "; it looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise InputError(
            f"{shown_path(path)}: not valid UTF-8: byte 0x{data[error.start]:02X} at offset {error.start} "
            f"of {len(data)} ({error.reason}){hint}"
        ) from None


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """A file's bytes.

    Raises:
      InputError: the file is missing, is a folder or cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{shown_path(path)}: cannot be read: {reason}") from None


def drop_trailing_newline(text: str) -> tuple[str, bool]:
    """The text without its last newline, and whether it had one.

    Exactly one `\\n` goes, as llama-perplexity does to the file it scores; a
    `\\r` before it stays.
    """
    if text.endswith("\n"):
        return text[:-1], True
    return text, False
