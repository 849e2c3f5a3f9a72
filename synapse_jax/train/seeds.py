"""Streams of random numbers by name."""

from __future__ import annotations

import hashlib

import numpy as np


def random_state(*parts: object) -> np.random.RandomState:
    """The stream of random numbers of that name: no later numpy changes it (NEP 19).

    Args:
        parts: the name, words and numbers.
    """
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, "<u4"))
