"""How names from a file are shown in one-line messages."""

from __future__ import annotations

import os

import numpy as np

_LONGEST = 80


def quote(value: object) -> str:
    """A value from a file as one printable line: its repr in ASCII, cut in the middle above 80 characters.

    Of an array only the length is shown.
    """
    if isinstance(value, (list, np.ndarray)):
        return f"an array of {len(value)} values"
    text = ascii(value[: _LONGEST * 4] if isinstance(value, (str, bytes)) else value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 20]} … {text[-10:]}"


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as it is where it prints on one line, else its repr."""
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)
