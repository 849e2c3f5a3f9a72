"""Draws that are the same in every process and version: SHA-256 of a name and a count."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from synapse_jax.errors import InputError

Item = TypeVar("Item")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ATTEMPTS = 1000
"""Draws of one thing until it must be one that the text does not hold."""


class Draws:
    """A sequence of draws that follows from a name alone.

    Args:
        name: for example `0/needle/4096/0.5/0`.
        text: casefolded; what is drawn as a value, key or name never occurs in it.
    """

    def __init__(self, name: str, text: str = ""):
        self._name, self._text, self._count = name, text, 0
        self._taken: list[str] = []

    def below(self, limit: int) -> int:
        """A number in [0, limit); its bias is below limit / 2^64."""
        digest = hashlib.sha256(f"{self._name}#{self._count}".encode()).digest()
        self._count += 1
        return int.from_bytes(digest[:8], "little") % limit

    def fraction(self) -> float:
        """A number in [0, 1), a multiple of 2^-53."""
        return self.below(2**53) / 2**53

    def choose(self, items: Sequence[Item]) -> Item:
        """One of them."""
        return items[self.below(len(items))]

    def number(self, digits: int) -> str:
        """A number of so many digits, the first not 0, that occurs nowhere yet."""
        least = 10 ** (digits - 1)
        return self._new(lambda: str(least + self.below(9 * least)), f"number of {digits} digits")

    def key(self, *lists: Sequence[str]) -> str:
        """A word of each list, that occur together nowhere yet."""
        return self._new(lambda: " ".join(self.choose(words) for words in lists), "key")

    def name(self, letters: int) -> str:
        """A name of so many capital letters that occurs nowhere yet."""
        return self._new(
            lambda: "".join(self.choose(LETTERS) for _ in range(letters)), f"name of {letters} letters"
        )

    def _new(self, draw: Callable[[], str], what: str) -> str:
        """A draw that neither the text nor an earlier draw holds, in any case of letters.

        Raises:
            InputError: there seems to be none.
        """
        for _ in range(ATTEMPTS):
            drawn = draw()
            taken = any(drawn in other or other in drawn for other in self._taken)
            if not taken and drawn.casefold() not in self._text:
                self._taken.append(drawn)
                return drawn
        raise InputError(f"the haystack leaves no {what} that does not occur in it")
