"""A session: one model under one profile on one device. The only object that changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from synapse_jax.dims import DECODE_TOKENS, MAX_STEP_ROWS, row_bucket
from synapse_jax.errors import InputError, RunError
from synapse_jax.graph.compile import GRAPHS, CompiledEntry
from synapse_jax.graph.entry import DECODE_ROLE, PROMPT_ROLE, READY, STOP_TOKENS, Entry, Rows
from synapse_jax.graph.fingerprint import Identity, profile_identity, thread_count
from synapse_jax.ir.build import build
from synapse_jax.runtime import packing
from synapse_jax.runtime.cache import Cache
from synapse_jax.runtime.checks import check_finite, checked_ids
from synapse_jax.runtime.devices import find_device
from synapse_jax.runtime.params import WeightSource, load_params
from synapse_jax.runtime.plan import LARGE_ROWS, SMALL_ROWS, bucket, positions_needed, steps
from synapse_jax.runtime.results import Generation, Scores
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile, resolve

Progress = Callable[[int, int], None]
"""(done, total), called as work goes on."""


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
        self.device = find_device(self.profile.device)
        self.ir = build(self.spec, self.profile)
        self.cache = Cache(self.spec, self.profile, self.device, positions)
        """The KV cache, to be looked at."""
        self.compile_s = 0.0
        """Seconds spent compiling, late entries included."""
        self._model = model
        self._log = log or logging.getLogger("synapse_jax").info
        self._entries: dict[Entry, CompiledEntry] = {}
        # The compiler's memory is given back before the weights need theirs.
        self._compile([self._entry(name, rows) for name, rows in ready])
        started = time.perf_counter()
        self._params = load_params(self.ir, model, self.device, progress)
        self.load_s = time.perf_counter() - started
        """Seconds spent reading, converting and placing the weights."""

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
    def compiled_entries(self) -> tuple[CompiledEntry, ...]:
        """Every entry compiled so far, in the order of their names and shapes."""
        return tuple(self._entries[entry] for entry in sorted(self._entries))

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
                self._check_finite(nll[here], first + skip + 1)
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
            entry = self._entry("logits" if here.size else "step", SMALL_ROWS)
            packed = self._rows(entry, ids, first, count)
            if here.size:
                out[here] = np.asarray(self._call(entry, packed))[wanted[here] - first]
            else:
                self._call(entry, packing.step_batch(packed))
            self.cache.advance(first + count)
        # The last row evaluated sees every key: if a number anywhere is not finite, it is not either.
        self._check_finite(out[wanted.argmax()].max(keepdims=True), evaluated)
        return out

    def generate(
        self,
        ids: Sequence[int] | np.ndarray,
        max_new_tokens: int = 64,
        *,
        stop_ids: Collection[int] | None = None,
        progress: Progress | None = None,
    ) -> Generation:
        """Continues a prompt greedily, several tokens a device call.

        Args:
            ids: the prompt's token IDs, at least one.
            max_new_tokens: most tokens to add; 0 evaluates the prompt only.
            stop_ids: tokens that end the continuation; None means the model's own.
            progress: called with (positions evaluated, most positions).

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
        new = [self._evaluate_prompt(ids, lambda done: report(done, needed))]
        while len(new) < max_new_tokens and new[-1] not in stops:
            new += self._decode(new[-1], len(ids) + len(new) - 1, max_new_tokens - len(new), stops)
            report(len(ids) + len(new) - 1, needed)
        new = new[:max_new_tokens]
        stopped = bool(new) and new[-1] in stops
        return Generation(tuple(new[:-1] if stopped else new), "stop" if stopped else "length", len(ids))

    def _evaluate_prompt(self, ids: np.ndarray, report: Callable[[int], None]) -> int:
        """Evaluates a prompt; returns the most likely token after it."""
        logits_QV = None
        for first, count in steps(len(ids), LARGE_ROWS):
            entry = self._entry("step", bucket(count, LARGE_ROWS))
            logit_rows = [count - 1] if first + count == len(ids) else []
            batch = packing.step_batch(self._rows(entry, ids, first, count), logit_rows=logit_rows)
            _, _, logits_QV = self._call(entry, batch)
            self.cache.advance(first + count)
            report(first + count)
        logits_V = np.asarray(logits_QV)[0]
        self._check_finite(logits_V[np.argmax(logits_V), None], len(ids))
        return int(np.argmax(logits_V))

    def _decode(self, token: int, position: int, most: int, stop_ids: Sequence[int]) -> list[int]:
        """Evaluates a token and the greedy ones after it; returns the new tokens."""
        turns = min(most, DECODE_TOKENS)
        entry = self._entry("decode", 1)
        given = np.array([token], np.int32)
        segment = packing.Segment(given, position, self.cache.page_table, DECODE_ROLE)
        batch = packing.decode_batch(entry, self.profile, segment, turns=turns, stop_tokens=stop_ids)
        greedy, nll, evaluated = map(np.asarray, self._call(entry, batch))
        self._check_finite(nll[:evaluated, 0], position + 1)
        self.cache.advance(position + int(evaluated))
        return greedy[: int(evaluated), 0].tolist()

    def _score_step(self, ids: np.ndarray, first: int, count: int, skip: int, rows: int):
        """NLL and greedy tokens of a step; the first `skip` rows are evaluated and not scored."""
        entry = self._entry("step", bucket(count, row_bucket(rows)))
        targets = ids[first + skip + 1 : first + count + 1]
        batch = packing.step_batch(self._rows(entry, ids, first, count), targets, skip)
        nll, greedy, _ = self._call(entry, batch)
        return np.asarray(nll), np.asarray(greedy)

    def _score_one_by_one(self, ids: np.ndarray, first: int, count: int, skip: int, rows: int):
        """As `_score_step`, through the one-row entry; the rows stay prompt tokens."""
        entry = self._entry("decode", 1)
        segment = packing.Segment(ids[first : first + count], first, self.cache.page_table, PROMPT_ROLE)
        targets = ids[first + 1 : first + count + 1]
        batch = packing.decode_batch(entry, self.profile, segment, turns=count, targets=targets)
        greedy, nll, _ = self._call(entry, batch)
        return np.asarray(nll)[:, 0], np.asarray(greedy)[:, 0]

    def _rows(self, entry: Entry, ids: np.ndarray, first: int, count: int) -> Rows:
        segment = packing.Segment(ids[first : first + count], first, self.cache.page_table)
        return packing.pack_rows(entry, self.profile, [segment])

    def _entry(self, name: str, rows: int) -> Entry:
        return Entry(name, rows, self.cache.capacity)

    def _call(self, entry: Entry, batch) -> Any:
        if entry not in self._entries:
            self._compile([entry])
        return self.cache.run(lambda pages: self._entries[entry](self._params, pages, batch))

    def _compile(self, entries: Sequence[Entry]) -> None:
        """Compiles entries in threads: the compiler leaves the interpreter free."""
        if not entries:
            return
        started = time.perf_counter()
        self._log(f"compiling {', '.join(map(str, entries))}")
        with ThreadPoolExecutor(max_workers=min(thread_count(), len(entries))) as pool:
            compiled = pool.map(lambda entry: GRAPHS.compile(self.ir, entry, self.device), entries)
            self._entries.update(zip(entries, compiled, strict=True))
        self.compile_s += time.perf_counter() - started

    def _check_finite(self, nll: np.ndarray, position: int) -> None:
        """As `check_finite`; the pages that hold the bad numbers are let go."""
        try:
            check_finite(nll, position)
        except RunError:
            self.cache.drop()
            raise
