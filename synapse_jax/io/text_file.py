"""Text files as they are: bytes on disk, no locale and no newline translation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import AnyStr

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.utf8 import first_bad_byte


def read_text(path: str | os.PathLike[str]) -> str:
    """Text of a file that must be UTF-8. A byte-order mark, NUL and CR LF stay in it.

    What is tokenized need not be UTF-8: it is `read_bytes`, and `Tokenizer.encode` takes bytes.

    Raises:
      InputError: the file cannot be read, or is not UTF-8; the message names
        the offset of the first bad byte.
    """
    return strict_text(read_bytes(path), shown_path(path))


def strict_text(data: bytes, source: str) -> str:
    """Bytes as text.

    Args:
      data: UTF-8.
      source: The file or flag they came from, for messages.

    Raises:
      InputError: they are not UTF-8; the message names the offset of the first bad byte.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source}: not valid UTF-8: byte 0x{data[error.start]:02X} at offset {error.start} "
            f"of {len(data)} ({error.reason}){_encoding_hint(data)}"
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


def drop_trailing_newline(text: AnyStr) -> tuple[AnyStr, bool]:
    """The text without its last newline, and whether it had one.

    Exactly one `\\n` goes, as llama-perplexity does to the file it scores; a
    `\\r` before it stays.
    """
    newline = "\n" if isinstance(text, str) else b"\n"
    if text.endswith(newline):  # type: ignore[arg-type]
        return text[:-1], True
    return text, False


def describe_bad_bytes(data: bytes, source: str) -> str | None:
    """One line about the first byte of a text that is not UTF-8; None where all is.

    Args:
      data: The text.
      source: The file or flag it came from.
    """
    at = first_bad_byte(data)
    if at is None:
        return None
    return (
        f"{source}: not valid UTF-8: byte 0x{data[at]:02X} at offset {at} of "
        f"{len(data)}{_encoding_hint(data)}; tokenized as llama.cpp does"
    )


def _encoding_hint(data: bytes) -> str:
    """What the bytes may be, for a message; UTF-16 files begin with their mark."""
    return "; it looks like UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
