"""Prefix reuse: which of a session's keys and values a new evaluation may begin with."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

from synapse_jax.kv.prefix import RememberedTokens
from synapse_jax.runtime.cache import Cache
from synapse_jax.runtime.evaluated import EvaluatedTokens


@dataclasses.dataclass(frozen=True)
class Reused:
    """What an evaluation begins with."""

    tokens: int = 0
    """Tokens that are not evaluated again."""
    generated: int = 0
    """How many of these were evaluated a row at a time: their keys are exact to 1e-4, not to the bit."""
    common: int = 0
    """Tokens that might have been reused."""
    is_on: bool = False
    """Whether reuse was asked for."""
    note: str | None = None
    """Why fewer are reused than are common."""


NOTHING = Reused()


class Prefix:
    """The main sequence of a cache and the tokens that it holds.

    Args:
        cache: holds the sequence.
        evaluated: tokens of the steps that run; it is cleared where an evaluation begins.
    """

    def __init__(self, cache: Cache, evaluated: EvaluatedTokens):
        self._cache, self._evaluated = cache, evaluated
        self.tokens = RememberedTokens()

    def forget(self) -> None:
        """Remembers no tokens; what the cache holds stays until it is overwritten."""
        self.tokens.forget()
        self._evaluated.clear()

    @contextlib.contextmanager
    def evaluation(
        self, ids: np.ndarray, positions: int, *, reuse: bool, limit: int | None = None
    ) -> Iterator[Reused]:
        """The cache made ready for a sequence that begins with `ids`, and honest if its evaluation fails.

        Args:
            ids: int32 [n], the tokens that may be held already; with at least one more to be evaluated.
            positions: positions to make room for.
            reuse: whether the remembered tokens count; else they are forgotten.
            limit: most positions that the pools may hold; the context by default.

        Yields:
            What is reused. If the body fails, only these tokens are remembered and held, or fewer where
            windows have moved past them.
        """
        self._evaluated.clear()
        if not reuse:
            self.forget()
        common = self.tokens.common(ids)
        length = self._cache.usable(common)
        reused = Reused(
            length, self.tokens.generated_before(length), common, reuse, self._note(common, length)
        )
        self.tokens.keep(length)
        try:
            self._cache.begin(length, positions, limit)
            yield reused
        except BaseException:
            self._cache.drop_forks()
            self._cache.keep(length)
            self.tokens.keep(self._cache.held)
            raise

    def _note(self, common: int, length: int) -> str | None:
        if length == common:
            return None
        if common > self._cache.held:
            return f"{common} tokens are common, the cache holds {self._cache.held}"
        if self._cache.is_compressed:
            return (
                f"{common} tokens are common, but compressed attention goes on only where it ended (at "
                f"{self._cache.held})"
            )
        kept = ", ".join(map(str, self._cache.snapshots)) or "none"
        return (
            f"{common} tokens are common, but the sliding windows have moved past them (at "
            f"{self._cache.held}); snapshots: {kept}"
        )
