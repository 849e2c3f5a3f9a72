"""Evaluating tokens with a graph that was exported, in place of one that is lowered here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from synapse_jax.dims import DECODE_TOKENS
from synapse_jax.errors import InputError
from synapse_jax.graph.entry import DECODE_ROLE, PROMPT_ROLE
from synapse_jax.graph.export import compile_exported
from synapse_jax.graph.export_folder import ExportedGraph
from synapse_jax.ir.build import build
from synapse_jax.kv.kinds import step_span
from synapse_jax.runtime import packing
from synapse_jax.runtime.cache import Cache
from synapse_jax.runtime.checks import check_finite, checked_ids
from synapse_jax.runtime.params import ModelSource, load_params
from synapse_jax.runtime.plan import step_room
from synapse_jax.spec.runtime import resolve


class Evaluation(NamedTuple):
    """What a graph says of n tokens."""

    nll: np.ndarray
    """float32 [n − 1], −ln p of each token but the first."""
    greedy: np.ndarray
    """int32 [n − 1], the most likely token in its place."""
    logits: np.ndarray | None
    """float32 [V] after the last token; None of an entry that returns none."""


class ExportedRunner:
    """A model's weights under an exported `step` or `decode`.

    The rows are those of a session: prompt tokens, or decoded ones where the policy is of these alone.

    Args:
        model: gives the spec and the weights.
        graph: the graph.
        device: where it runs.
        progress: called with (weights loaded, weights in all).

    Raises:
        InputError: another model than the graph's, another platform, or an entry that evaluates no tokens.
    """

    def __init__(
        self,
        model: ModelSource,
        graph: ExportedGraph,
        device: jax.Device,
        progress: Callable[[int, int], None] | None = None,
    ):
        self.ir = build(model.spec, resolve(graph.profile, model.spec))
        self.entry = graph.entry(self.ir)
        policy = self.ir.profile.policy
        served = ("decode",) if policy.is_decode_only else ("step", "decode")
        if self.entry.name not in served:
            raise InputError(
                f"{graph.source}: {self.entry} under attention {policy} evaluates no text; "
                f"{' and '.join(served)} do"
            )
        self._role = DECODE_ROLE if policy.is_decode_only else PROMPT_ROLE
        started = time.perf_counter()
        self._call = compile_exported(graph.exported, self.ir, self.entry, device, graph.source)
        self.compile_s = time.perf_counter() - started
        """Seconds spent compiling."""
        self._device = device
        self._params = load_params(self.ir, model, device, progress)

    def evaluate(
        self, ids: Sequence[int] | np.ndarray, progress: Callable[[int, int], None] | None = None
    ) -> Evaluation:
        """Evaluates tokens from position 0 on.

        Args:
            ids: token IDs [n], at least two; no more than the graph's capacity.
            progress: called with (positions evaluated, positions in all).

        Raises:
            InputError: tokens that cannot be used, or too many.
            RunError: a number that is not finite.
        """
        profile = self.ir.profile
        assert profile.context is not None
        most = min(profile.context, self.entry.capacity)
        ids = checked_ids(ids, self.ir.spec.vocab_size, most)
        if len(ids) < 2:
            raise InputError("one token has nothing to be predicted from; two are the least")
        # A cache of the very capacity that the graph was made for.
        cache = Cache(self.ir.spec, profile, self._device, most)
        cache.begin(0, most)
        nll, greedy = np.zeros(len(ids) - 1, np.float32), np.zeros(len(ids) - 1, np.int32)
        is_step, first, logits = self.entry.name == "step", 0, None
        rows = self.entry.rows if is_step else DECODE_TOKENS
        total = len(ids) if is_step else len(ids) - 1
        while first < total:
            count = step_room(first, min(rows, total - first), step_span(profile))
            targets = ids[first + 1 : first + count + 1]
            evaluate = self._step if is_step else self._decode
            step_nll, step_greedy, logits = evaluate(cache, ids, first, count, targets)
            here = slice(first, first + len(targets))
            nll[here], greedy[here] = step_nll[: len(targets)], step_greedy[: len(targets)]
            check_finite(nll[here], first + 1)
            cache.advance(first + count)
            first += count
            if progress:
                progress(first, total)
        return Evaluation(nll, greedy, logits)

    def _step(self, cache: Cache, ids: np.ndarray, first: int, count: int, targets: np.ndarray):
        rows = packing.pack_rows(self.entry, self.ir, [self._segment(cache, ids, first, count)])
        is_last = first + count == len(ids)
        batch = packing.step_batch(rows, targets, logit_rows=[count - 1] if is_last else [])
        nll, greedy, logits_QV = cache.run(lambda pages: self._call(self._params, pages, batch))
        return np.asarray(nll), np.asarray(greedy), np.asarray(logits_QV)[0] if is_last else None

    def _decode(self, cache: Cache, ids: np.ndarray, first: int, count: int, targets: np.ndarray):
        segment = self._segment(cache, ids, first, count)
        batch = packing.decode_batch(self.entry, self.ir, segment, turns=count, targets=targets)
        greedy, nll, _ = cache.run(lambda pages: self._call(self._params, pages, batch))
        return np.asarray(nll)[:, 0], np.asarray(greedy)[:, 0], None

    def _segment(self, cache: Cache, ids: np.ndarray, first: int, count: int) -> packing.Segment:
        cache.open(cache.main, first, count)
        return packing.Segment(ids[first : first + count], first, cache.main.tables, self._role)
