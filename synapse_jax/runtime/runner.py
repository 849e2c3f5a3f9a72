"""One model under one profile on one device: compiled entries, weights and pages, and single steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from synapse_jax.dims import MAX_STEP_ROWS, row_bucket
from synapse_jax.errors import RunError
from synapse_jax.graph.compile import CompiledEntry
from synapse_jax.graph.entry import PROMPT_ROLE, Batch, Entry, Rows, fitting
from synapse_jax.ir.build import build
from synapse_jax.kv.kinds import step_rows, step_span
from synapse_jax.runtime import packing
from synapse_jax.runtime.cache import Cache
from synapse_jax.runtime.checks import check_finite
from synapse_jax.runtime.devices import find_device
from synapse_jax.runtime.entries import Entries
from synapse_jax.runtime.evaluated import EvaluatedTokens
from synapse_jax.runtime.params import ModelSource, load_params
from synapse_jax.runtime.plan import bucket, step_room, steps
from synapse_jax.runtime.prefix import NOTHING, Reused
from synapse_jax.spec.runtime import RuntimeProfile

Progress = Callable[[int, int], None]
"""(done, total), called as work goes on."""


class Runner:
    """Runs entries on a cache. Compiles what is missing, and says so.

    Args:
        model: gives the spec and the weights.
        profile: resolved.
        ready: (entry, rows) pairs to compile now.
        positions: positions to make room for at once.
        log: told, a line each time, what compiles; the `synapse_jax` logger by default.
        progress: called with (weights loaded, weights in all).
        params: the weights, where they are on the device already.
    """

    def __init__(
        self,
        model: ModelSource,
        profile: RuntimeProfile,
        *,
        ready: Sequence[tuple[str, int]],
        positions: int,
        log: Callable[[str], None] | None,
        progress: Progress | None,
        params: dict[str, jax.Array] | None = None,
    ):
        self.spec = spec = model.spec
        self.profile = profile
        self.device = find_device(profile.device)
        self.ir = build(spec, profile)
        log = log or logging.getLogger("synapse_jax").info
        self.cache = Cache(spec, profile, self.device, positions, log)
        self.evaluated = EvaluatedTokens()
        """The tokens of the steps that have run."""
        at_load = [self.entry(name, rows) for name, rows in fitting(profile, ready)]
        self.entries = Entries(self.ir, self.device, at_load, log)
        started = time.perf_counter()
        self.params = params or load_params(self.ir, model, self.device, progress)
        self.load_s = time.perf_counter() - started
        """Seconds spent reading, converting and placing the weights."""
        self.entries.finish()

    @property
    def compiled_entries(self) -> tuple[CompiledEntry, ...]:
        """Every entry compiled so far, in the order of their names and shapes."""
        return self.entries.compiled

    @property
    def compile_s(self) -> float:
        """Seconds that work has waited for compilations: of entries, growths and copies of pages."""
        return self.entries.compile_s + self.cache.pools.compile_s

    def make_room(self, positions: int) -> None:
        """`Cache.ensure`, for a sequence that goes on; the next growth is compiled ahead of need."""
        self.cache.ensure(positions)
        self.look_ahead(positions, 2 * self.cache.capacity)

    def look_ahead(self, held: int, wanted: int) -> None:
        """Compiles ahead, if the pages are nearly full, for the rung of `wanted` positions."""
        self.entries.look_ahead(held, self.cache.capacity, self.cache.rung(wanted))

    def steps(self, total: int, rows: int, first: int = 0) -> Iterator[tuple[int, int]]:
        """`plan.steps` as the profile allows them."""
        return steps(total, rows, first, step_span(self.profile))

    def room(self, first: int, most: int) -> int:
        """Rows, up to `most`, that a step from position `first` on may have."""
        return step_room(first, most, step_span(self.profile))

    def step_entry(self, count: int, rows: int = MAX_STEP_ROWS, sequences: int = 1) -> Entry:
        """The `step` entry that evaluates `count` rows of work that takes `rows` at a time."""
        return self.entry("step", bucket(count, row_bucket(min(rows, step_rows(self.profile)))), sequences)

    def entry(self, name: str, rows: int, sequences: int = 1) -> Entry:
        """An entry at the cache's present capacity."""
        return Entry(name, rows, self.cache.capacity, sequences)

    def segment(
        self, tokens: np.ndarray, start: int, count: int | None = None, role: int = PROMPT_ROLE
    ) -> packing.Segment:
        """Tokens, int32 [n], of the main sequence from position `start` on, with pages for them.

        `count` says how many positions are written where it is more than n.
        """
        self.cache.open(self.cache.main, start, count or len(tokens))
        return packing.Segment(tokens, start, self.cache.main.tables, role)

    def rows(self, entry: Entry, tokens: np.ndarray, start: int, role: int = PROMPT_ROLE) -> Rows:
        """The rows of a step over such tokens."""
        return packing.pack_rows(entry, self.ir, [self.segment(tokens, start, role=role)])

    def advance(self, first: int, count: int, reused: Reused = NOTHING) -> None:
        """Says that a step over such positions has finished.

        Where sequences part that have more in common than could be reused, a snapshot is kept for the next.
        """
        self.cache.advance(first + count)
        if reused.tokens < reused.common and first < reused.common <= first + count:
            self.cache.take_snapshot(reused.common)

    def call(self, entry: Entry, batch: Batch) -> Any:
        """Runs an entry on the pages and waits for its results."""
        compiled = self.entries.get(entry)
        out = self.cache.run(lambda pages: compiled(self.params, pages, batch))
        self.evaluated.add(batch, out)
        return out

    def call_alone(self, entry: Entry, batch: Batch) -> Any:
        """Runs an entry that takes neither weights nor pages."""
        return self.entries.get(entry)({}, (), batch)[0]

    def check_finite(self, nll: np.ndarray, position: int) -> None:
        """As `checks.check_finite`; the pages that hold the bad numbers are let go."""
        try:
            check_finite(nll, position)
        except RunError:
            self.cache.drop()
            raise
