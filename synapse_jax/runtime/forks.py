"""Endings of one prompt: sequences that share its pages and are scored together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from synapse_jax.dims import FORKS, MAX_STEP_ROWS
from synapse_jax.errors import RunError
from synapse_jax.kv.kinds import cache_kinds
from synapse_jax.kv.sequence import PagedSequence
from synapse_jax.kv.sizes import reach_pages
from synapse_jax.runtime import packing
from synapse_jax.runtime.evaluation import evaluate_tokens
from synapse_jax.runtime.prefix import Prefix
from synapse_jax.runtime.results import Scores
from synapse_jax.runtime.runner import Progress, Runner


class Forks:
    """Endings of the main sequence of a cache, which holds all of the prompt but its last token.

    That last token is evaluated once more with every ending: its row predicts the ending's first token.

    Args:
        runner: runs the steps.
        prefix: the prompt, int32 [n].
        endings: int32 [m] each.
    """

    def __init__(self, runner: Runner, prefix: np.ndarray, endings: Sequence[np.ndarray]):
        self._runner, self._prefix_ids, self._endings = runner, prefix, endings
        self._start = len(prefix) - 1
        self._inputs = [np.concatenate([prefix[-1:], ending[:-1]]) for ending in endings]
        self._nll = [np.zeros(len(ending), np.float32) for ending in endings]
        self._greedy = [np.zeros(len(ending), np.int32) for ending in endings]

    @property
    def positions(self) -> int:
        """Positions that the pools should hold: the prompt's, and the pages of a wave of endings."""
        size = self._runner.profile.page_size
        own = [self._own_pages(0, index) for index in range(len(self._endings))]
        wave = max(sum(own[first : first + FORKS]) for first in range(0, len(own), FORKS))
        # Few long endings at a time are as fast as many.
        wave = min(wave, max(2 * FORKS, *own))
        return (-(-self._start // size) + wave) * size

    @property
    def limit(self) -> int:
        """Most positions in the pools: more than the context, which each of the sequences may fill."""
        return max(self._runner.cache.capacity, self.positions, self._runner.profile.context or 0)

    def run(self, prefix: Prefix, reuse: bool, progress: Progress) -> list[Scores]:
        """Evaluates the prompt, beginning with what is held of it, then scores all endings.

        Args:
            prefix: what the session remembers; the prompt is remembered afterwards if `reuse` says so.
            reuse: whether the remembered tokens count.
            progress: called with (positions evaluated, positions to evaluate).
        """
        ids, total = self._prefix_ids, self._start + sum(map(len, self._endings))
        held = ids[: prefix.tokens.exact(self._start)]
        with prefix.evaluation(held, self.positions, reuse=reuse, limit=self.limit) as reused:
            new = ids[reused.tokens : -1]
            evaluate_tokens(
                self._runner,
                new,
                reused.tokens,
                reused,
                lambda done: progress(done, total),
                wants_logits=False,
            )
            if reuse:
                self._runner.cache.take_snapshot(self._start)
            scores = self.score(lambda done: progress(self._start + done, total))
        if reuse:
            prefix.tokens.add(ids[reused.tokens :])
        return [dataclasses.replace(one, reused_tokens=reused.tokens) for one in scores]

    def score(self, report: Callable[[int], None]) -> list[Scores]:
        """Scores all endings; `report` is called with the rows evaluated."""
        first = done = 0
        while first < len(self._endings):
            count = self._wave(first)
            try:
                for rows in self._run(range(first, first + count)):
                    done += rows
                    report(done)
            finally:
                self._runner.cache.drop_forks()
            first += count
        return [Scores(nll, greedy) for nll, greedy in zip(self._nll, self._greedy, strict=True)]

    def _own_pages(self, window: int, index: int) -> int:
        """Pages that an ending needs for itself in pools of one kind."""
        size = self._runner.profile.page_size
        pages = (self._start + len(self._inputs[index]) - 1) // size - self._start // size + 1
        return min(pages, reach_pages(window, size)) if window else pages

    def _wave(self, first: int) -> int:
        """How many endings from `first` on have pages at the same time."""
        runner, cache, count = self._runner, self._runner.cache, 0
        windows = [kind.window for kind in cache_kinds(runner.spec, runner.profile)]
        needed = np.zeros(len(windows), np.int64)
        while count < FORKS and first + count < len(self._endings):
            needed += [self._own_pages(window, first + count) for window in windows]
            if np.any(needed > cache.free_pages()):
                break
            count += 1
        if not count and cache.snapshots:
            cache.drop_snapshots()
            return self._wave(first)
        if not count:
            raise RunError(
                f"a continuation of {len(self._endings[first])} tokens after {self._start + 1} finds no free "
                f"pages in a KV cache of {cache.capacity} positions"
            )
        return count

    def _run(self, wave: range) -> Iterator[int]:
        """Evaluates a wave of endings, packed into steps; yields the rows of each step."""
        sequences = {index: self._runner.cache.fork(self._start) for index in wave}
        ends = np.cumsum([len(self._inputs[index]) for index in wave])
        for first, count in self._runner.steps(int(ends[-1]), MAX_STEP_ROWS):
            pieces = []
            for index, end in zip(wave, ends.tolist(), strict=True):
                begin = end - len(self._inputs[index])
                piece = slice(max(first - begin, 0), min(first + count, end) - begin)
                if piece.start < piece.stop:
                    pieces.append((index, piece))
            self._step(pieces, sequences)
            yield count

    def _step(self, pieces: list[tuple[int, slice]], sequences: dict[int, PagedSequence]) -> None:
        """Evaluates parts of several endings and keeps their scores."""
        runner = self._runner
        rows = sum(piece.stop - piece.start for _, piece in pieces)
        entry = runner.step_entry(rows, sequences=FORKS)
        segments = []
        for index, piece in pieces:
            start, tokens = self._start + piece.start, self._inputs[index][piece]
            runner.cache.open(sequences[index], start, len(tokens))
            segments.append(packing.Segment(tokens, start, sequences[index].tables))
        targets = np.concatenate([self._endings[index][piece] for index, piece in pieces])
        batch = packing.step_batch(packing.pack_rows(entry, runner.ir, segments), targets)
        nll, greedy, _ = map(np.asarray, runner.call(entry, batch))
        row = 0
        for index, piece in pieces:
            here = slice(row, row + piece.stop - piece.start)
            self._nll[index][piece], self._greedy[index][piece] = nll[here], greedy[here]
            runner.check_finite(self._nll[index][piece], self._start + 1 + piece.start)
            row = here.stop
