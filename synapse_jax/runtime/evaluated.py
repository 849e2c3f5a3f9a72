"""Which tokens were evaluated, as the device was given them or chose them itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from synapse_jax.graph.entry import Batch, DecodeBatch, Rows, SampleBatch, StepBatch


class EvaluatedTokens:
    """The tokens of all steps since `clear`, read from the arrays that went to the device and came back.

    What a caller asked for has no part in it: a step that is left out, comes twice or has other tokens shows.
    """

    def __init__(self) -> None:
        self._steps: list[np.ndarray] = []

    @property
    def ids(self) -> np.ndarray:
        """int32 [n], in the order of the steps; sequences of one step follow each other."""
        return np.concatenate(self._steps) if self._steps else np.zeros(0, np.int32)

    def clear(self) -> None:
        """Forgets them."""
        self._steps.clear()

    def add(self, batch: Batch, out: Any) -> None:
        """Takes in a step that has finished.

        Args:
            batch: what an entry was given.
            out: what it returned, without the pages.
        """
        if isinstance(batch, SampleBatch):
            batch = batch.decode
        if isinstance(batch, StepBatch):
            batch = batch.rows
        if isinstance(batch, Rows):
            self._steps.append(np.asarray(batch.token_T)[np.asarray(batch.position_T) >= 0])
        elif isinstance(batch, DecodeBatch):
            chosen_AB, _, turns = out
            given, token_AB = int(batch.given), np.asarray(batch.token_AB)
            # From turn `given` on, a turn evaluates what the one before has chosen.
            tokens_AB = np.concatenate([token_AB[:given], np.asarray(chosen_AB)[given - 1 :]])
            self._steps.append(tokens_AB[: int(turns)].reshape(-1))
