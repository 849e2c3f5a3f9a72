"""A greedy continuation as it grows, beside that of another engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np


class Greedy:
    """Takes the likeliest token, again and again.

    Args:
        count: most tokens.
        stop_ids: tokens that end the text and are not part of it.
        beside: for each position the tokens that the other engine may have taken there; one, or all stop
            tokens where it stopped. None: there is no other engine.
    """

    def __init__(
        self, count: int, stop_ids: Collection[int] = (), beside: Sequence[Collection[int]] | None = None
    ):
        self._count, self._stop_ids, self._beside = count, stop_ids, beside
        self.tokens: list[int] = []
        """The text so far."""
        self.stopped = False
        """Whether a stop token came."""
        self.margin: float | None = None
        """Where the first token differs from the other engine's: how far, in logits, the other one's token
        lies below the one taken here. None as long as they are the same."""

    @property
    def is_done(self) -> bool:
        """Whether no more tokens are wanted."""
        return self.stopped or len(self.tokens) >= self._count

    def take(self, logits_V: np.ndarray) -> None:
        """Takes the next token by its logits, float32 [V]."""
        token, index = int(logits_V.argmax()), len(self.tokens)
        if self._beside is not None and self.margin is None and index < len(self._beside):
            others = self._beside[index]
            if token not in others:
                self.margin = float(logits_V[token]) - max(float(logits_V[other]) for other in others)
        if token in self._stop_ids:
            self.stopped = True
        else:
            self.tokens.append(token)
