"""How names from a file are shown in one-line messages."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

_LONGEST = 80
_LISTED = 8
"""Names that one line lists before it only counts."""


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


def listed(what: str, names: Sequence[str]) -> list[str]:
    """One line about some names, or none where there are none; of many only the first are listed."""
    if not names:
        return []
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return [f"{what}: {', '.join(quote(name) for name in names[:_LISTED])}{more}"]
