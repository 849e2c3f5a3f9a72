"""Canonical bytes and their SHA-256: the ground that identities stand on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no white space; frozen dataclasses become objects of their fields.

    Floats are written as Python's shortest text that reads back to the same value, so equal
    values give equal bytes in every process.

    Raises:
        ValueError: a float is NaN or infinite.
        TypeError: a value is none of dict, list, tuple, str, int, float, bool, None or dataclass.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain, ensure_ascii=True
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} has no canonical form")


def sha256_text(text: str) -> str:
    """Hexadecimal SHA-256 of the UTF-8 bytes of `text`."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_tokens(ids: Sequence[int] | np.ndarray) -> str:
    """Hexadecimal SHA-256 of token IDs as little-endian int32, the form every record uses."""
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest()
