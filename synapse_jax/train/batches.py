"""What a step learns from: windows of the token stream, some with a span that is repeated."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.train.plan import TrainingPlan
from synapse_jax.train.seeds import random_state

FIRST_RANDOM_ID = 256
"""Random tokens are drawn from here up: the ids below are single bytes."""


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """The windows of every step of a plan. They have no state: a step's windows follow from its number.

    A window is S + 1 tokens of the stream from anywhere, so it may cross from one document into the next; the
    end token between them says so, and attention is not cut there. Windows are drawn with replacement.

    In `repeat_share` of them, evenly spread over the run, a span of random tokens is written over the text in
    two to `repeat_copies` places. Its tokens count as targets like all others: the first copy cannot be
    predicted, the others only from those before them.

    Raises:
        InputError: the stream is shorter than one window, or there are no tokens to draw a span from.
    """

    ids: np.ndarray
    """uint16 [T], the train split."""
    end_id: int
    """The token that ends a document, V − 1: it is in no random span."""
    plan: TrainingPlan

    def __post_init__(self):
        needed = self.plan.length + 1
        if len(self.ids) < needed:
            raise InputError(f"training: the train split has {len(self.ids)} tokens, a window needs {needed}")
        if self.plan.repeat_share and self.end_id <= FIRST_RANDOM_ID:
            raise InputError(
                f"training: repeat_share {self.plan.repeat_share} needs tokens above the {FIRST_RANDOM_ID} "
                f"bytes; the vocabulary has {self.end_id + 1}"
            )

    def windows(self, step: int) -> np.ndarray:
        """The windows of a step, int32 [rows, S + 1]."""
        return np.stack([self._window(step * self.plan.rows + row) for row in range(self.plan.rows)])

    def carries_span(self, window: int) -> bool:
        """Whether the window of that number, counted over the whole run, has a repeated span."""
        share = self.plan.repeat_share
        return math.floor((window + 1) * share) > math.floor(window * share)

    def _window(self, number: int) -> np.ndarray:
        random = random_state("window", self.plan.seed, number)
        length = self.plan.length + 1
        start = random.randint(0, len(self.ids) - length + 1)
        window = self.ids[start : start + length].astype(np.int32)
        if self.carries_span(number):
            size = self.plan.repeat_length
            span = random.randint(FIRST_RANDOM_ID, self.end_id, size)
            copies = random.randint(2, self.plan.repeat_copies + 1)
            # The text that is left is cut at random places: copies never overlap, gaps have any size.
            cuts = np.sort(random.randint(0, length - copies * size + 1, copies))
            for start in cuts + size * np.arange(copies):
                window[start : start + size] = span
        return window


def held_out_windows(ids: np.ndarray, length: int, count: int) -> np.ndarray:
    """`count` windows of S + 1 tokens that do not overlap, evenly spread over a stream, int32 [count, S + 1].

    Args:
        ids: uint16 [T], the held-out split.
        length: S.
        count: how many.

    Raises:
        InputError: the stream is too short for them.
    """
    fits = len(ids) // (length + 1)
    if not 1 <= count <= fits:
        raise InputError(
            f"training: the held-out split has {len(ids)} tokens: from 1 to {fits} windows of {length + 1}, "
            f"not {count}"
        )
    starts = [index * len(ids) // count for index in range(count)]
    return np.stack([ids[start : start + length + 1] for start in starts]).astype(np.int32)
