"""A control that answers as it is told."""

from __future__ import annotations

import numpy as np

from synapse_jax.evals.controls.control import ControlText, Evaluated


class Echo:
    """Pretends to be another engine that answers as it is told, and says what it evaluated."""

    name = "echo 1.0"

    def __init__(self, tokens, *, dropped=0, vocab=288, margin=None):
        self._tokens, self._dropped, self._vocab, self._margin = tokens, dropped, vocab, margin

    def generate(self, ids, count, *, stop_ids=(), beside=None, progress=None):
        first = [min(tokens) for tokens in beside]
        assert isinstance(ids, np.ndarray) and len(first) <= count
        stopped = bool(first) and first[-1] in stop_ids
        tokens = tuple(first[: len(first) - stopped]) if self._tokens is None else self._tokens
        progress(len(ids))
        evaluated = Evaluated.of(ids[: len(ids) - self._dropped])
        stopped = stopped and self._tokens is None
        return ControlText(tokens, None, evaluated, stopped, self._margin, self._vocab)

    def close(self):
        pass
