"""A session: one model under one profile on one device. The only object that changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np

from synapse_jax.dims import MAX_STEP_ROWS, row_bucket
from synapse_jax.errors import InputError
from synapse_jax.graph.compile import CompiledEntry
from synapse_jax.graph.entry import READY, STOP_TOKENS
from synapse_jax.graph.fingerprint import Identity, profile_identity
from synapse_jax.runtime import packing
from synapse_jax.runtime.checks import checked_ids
from synapse_jax.runtime.generation import Continuation
from synapse_jax.runtime.params import WeightSource
from synapse_jax.runtime.plan import SMALL_ROWS, bucket, positions_needed, steps
from synapse_jax.runtime.results import Generation, Scores
from synapse_jax.runtime.runner import Progress, Runner
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from synapse_jax.spec.sampling import GREEDY, Sampling


class ModelSource(WeightSource, Protocol):
    """What a session needs of a model."""

    @property
    def spec(self) -> ModelSpec:
        """What the model computes."""
        ...

    @property
    def stop_ids(self) -> Collection[int]:
        """Tokens that end a continuation."""
        ...


class Session:
    """Runs a model. Not for use from several threads at once.

    Args:
        model: gives the spec and the weights (`sj.load`).
        profile: context, precision, device …; the defaults are the model's own.
        ready: (entry, rows) pairs to compile now; others compile when first used, and say so.
        positions: positions to make room for at once; more are made room for when they come.
        log: told, a line each time, what compiles; the `synapse_jax` logger by default.
        progress: called with (weights loaded, weights in all).

    Raises:
        InputError: the profile does not fit the model or the machine.
    """

    def __init__(
        self,
        model: ModelSource,
        profile: RuntimeProfile | None = None,
        *,
        ready: Sequence[tuple[str, int]] = READY,
        positions: int = 1,
        log: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ):
        self.spec = model.spec
        self.profile = resolve(profile or RuntimeProfile(), model.spec)
        self._model = model
        self._runner = Runner(
            model, self.spec, self.profile, ready=ready, positions=positions, log=log, progress=progress
        )
        self.device, self.ir = self._runner.device, self._runner.ir
        self.cache = self._runner.cache
        """The KV cache, to be looked at."""

    @property
    def identity(self) -> Identity:
        """The profile identity: what the numbers depend on."""
        return profile_identity(self.ir)

    @property
    def context(self) -> int:
        """Most positions that a sequence may have."""
        assert self.profile.context is not None
        return self.profile.context

    @property
    def compile_s(self) -> float:
        """Seconds spent compiling, late entries included."""
        return self._runner.compile_s

    @property
    def load_s(self) -> float:
        """Seconds spent reading, converting and placing the weights."""
        return self._runner.load_s

    @property
    def compiled_entries(self) -> tuple[CompiledEntry, ...]:
        """Every entry compiled so far, in the order of their names and shapes."""
        return self._runner.compiled_entries

    def score(
        self,
        ids: Sequence[int] | np.ndarray,
        start: int = 1,
        stop: int | None = None,
        *,
        rows: int = MAX_STEP_ROWS,
        progress: Progress | None = None,
    ) -> Scores:
        """Scores positions `start` … `stop` − 1 of a token sequence.

        Args:
            ids: token IDs [n], n at most the context.
            start: first position to score, at least 1: position 0 has nothing before it.
            stop: one past the last; None means n.
            rows: tokens a step, 1 to 512. From 2 up it does not change a bit (rows pad up to 32 or more).
            progress: called with (positions evaluated, positions to evaluate) after every step.

        Returns:
            NLL and greedy tokens, j-th entry for position start + j.

        Raises:
            InputError: a range, length, token or row count that cannot be used.
            RunError: a NaN or infinite NLL; its position is named.
        """
        ids = checked_ids(ids, self.spec.vocab_size, self.context)
        stop = len(ids) if stop is None else stop
        if not 1 <= start < stop <= len(ids):
            raise InputError(f"score range {start} … {stop} is not 1 ≤ start < stop ≤ {len(ids)} tokens")
        if not 1 <= rows <= MAX_STEP_ROWS:
            raise InputError(f"scoring rows {rows} are not from 1 to {MAX_STEP_ROWS}")
        evaluate = self._score_one_by_one if rows == 1 else self._score_step
        evaluated = stop - 1
        nll, greedy = np.zeros(stop - start, np.float32), np.zeros(stop - start, np.int32)
        self.cache.begin(evaluated)
        for first, count in steps(evaluated, rows):
            skip = min(max(start - 1 - first, 0), count)
            step_nll, step_greedy = evaluate(ids, first, count, skip, rows)
            if skip < count:
                here = slice(first + skip + 1 - start, first + count + 1 - start)
                nll[here], greedy[here] = step_nll[skip:count], step_greedy[skip:count]
                self._runner.check_finite(nll[here], first + skip + 1)
            self.cache.advance(first + count)
            if progress:
                progress(first + count, evaluated)
        return Scores(nll, greedy)

    def logits(self, ids: Sequence[int] | np.ndarray, rows: Sequence[int] | None = None) -> np.ndarray:
        """Logits after some positions, float32 [len(rows), V].

        Memory grows with len(rows) · V: for whole texts use `score`.

        Args:
            ids: token IDs [n].
            rows: positions whose next-token logits are wanted; None means all n.

        Raises:
            InputError: a position outside the sequence, or tokens that cannot be used.
        """
        ids = checked_ids(ids, self.spec.vocab_size, self.context)
        wanted = np.arange(len(ids)) if rows is None else np.asarray(rows)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or not wanted.size:
            raise InputError("logit rows must be a list of at least one integer")
        if wanted.min() < 0 or wanted.max() >= len(ids):
            raise InputError(f"logit rows {wanted.tolist()[:8]} are not positions of {len(ids)} tokens")
        out = np.zeros((len(wanted), self.spec.vocab_size), np.float32)
        evaluated = int(wanted.max()) + 1
        self.cache.begin(evaluated)
        for first, count in steps(evaluated, SMALL_ROWS):
            here = np.flatnonzero((wanted >= first) & (wanted < first + count))
            entry = self._runner.entry("logits" if here.size else "step", SMALL_ROWS)
            packed = self._runner.rows(entry, ids, first, count)
            if here.size:
                out[here] = np.asarray(self._runner.call(entry, packed))[wanted[here] - first]
            else:
                self._runner.call(entry, packing.step_batch(packed))
            self.cache.advance(first + count)
        # The last row evaluated sees every key: if a number anywhere is not finite, it is not either.
        self._runner.check_finite(out[wanted.argmax()].max(keepdims=True), evaluated)
        return out

    def generate(
        self,
        ids: Sequence[int] | np.ndarray,
        max_new_tokens: int = 64,
        *,
        sampling: Sampling = GREEDY,
        logprobs: bool = False,
        stop_ids: Collection[int] | None = None,
        progress: Progress | None = None,
        on_tokens: Callable[[list[int]], None] | None = None,
    ) -> Generation:
        """Continues a prompt, several tokens a device call.

        Args:
            ids: the prompt's token IDs, at least one.
            max_new_tokens: most tokens to add; 0 evaluates the prompt only.
            sampling: how tokens are chosen; greedily by default.
            logprobs: whether the log-probabilities of the new tokens are returned.
            stop_ids: tokens that end the continuation; None means the model's own.
            progress: called with (positions evaluated, most positions).
            on_tokens: called with new tokens as they come; device calls are then shorter.

        Raises:
            InputError: no prompt, a token outside the vocabulary, or prompt + max(max_new_tokens − 1, 0)
                positions above the context.
            RunError: logits that are not finite.
        """
        ids = checked_ids(ids, self.spec.vocab_size, self.context)
        needed = positions_needed(len(ids), max_new_tokens, self.context)
        stops = sorted(self._model.stop_ids if stop_ids is None else stop_ids)
        if len(stops) > STOP_TOKENS:
            raise InputError(f"{len(stops)} stop tokens are above the {STOP_TOKENS} that a call watches for")
        report = progress or (lambda done, total: None)
        report(0, needed)
        self.cache.begin(needed)
        continuation = Continuation(self._runner, ids, sampling, logprobs, stops)
        return continuation.run(max_new_tokens, lambda done: report(done, needed), on_tokens)

    def _score_step(self, ids: np.ndarray, first: int, count: int, skip: int, rows: int):
        """NLL and greedy tokens of a step; the first `skip` rows are evaluated and not scored."""
        entry = self._runner.entry("step", bucket(count, row_bucket(rows)))
        targets = ids[first + skip + 1 : first + count + 1]
        batch = packing.step_batch(self._runner.rows(entry, ids, first, count), targets, skip)
        nll, greedy, _ = self._runner.call(entry, batch)
        return np.asarray(nll), np.asarray(greedy)

    def _score_one_by_one(self, ids: np.ndarray, first: int, count: int, skip: int, rows: int):
        """As `_score_step`, through the one-row entry; the rows stay prompt tokens."""
        entry = self._runner.entry("decode", 1)
        segment = self._runner.segment(ids, first, count)
        targets = ids[first + 1 : first + count + 1]
        batch = packing.decode_batch(entry, self.ir, segment, turns=count, targets=targets)
        greedy, nll, _ = self._runner.call(entry, batch)
        return np.asarray(nll)[:, 0], np.asarray(greedy)[:, 0]
