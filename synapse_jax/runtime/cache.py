"""A session's KV cache: which sequence holds which pages, and how many positions there are."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax

from synapse_jax.dims import SNAPSHOTS, capacity_rung
from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.kinds import cache_kinds
from synapse_jax.kv.pages import Pages
from synapse_jax.kv.sequence import PagedSequence
from synapse_jax.runtime.pools import Pools
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile

Change = TypeVar("Change", bound=Callable)


def _whole(change: Change) -> Change:
    """A change of who holds which page: where it is interrupted half way, nothing is held afterwards."""

    @functools.wraps(change)
    def changed(cache: Cache, *args: Any) -> Any:
        try:
            return change(cache, *args)
        except BaseException:
            cache.drop()
            raise

    return cast(Change, changed)


class Cache:
    """Pools of pages, the main sequence in them, its forks and its snapshots.

    Layers behind a window let go of what no later row can see. A snapshot keeps the window's pages as they
    were at one length, so that the sequence can go on there again.

    A step donates the pages. When it fails they are gone: the cache then holds nothing, says so, and
    makes new pages when it is next used.

    Args:
        spec: the model.
        profile: resolved.
        device: where the pages are.
        positions: positions to make room for at once.
        log: told, a line each time, how the cache grows.
    """

    def __init__(
        self,
        spec: ModelSpec,
        profile: RuntimeProfile,
        device: jax.Device,
        positions: int = 1,
        log: Callable[[str], None] | None = None,
    ):
        assert profile.context is not None
        self._spec, self._profile, self._context = spec, profile, profile.context
        self._kinds = cache_kinds(spec, profile)
        self._windows = [kind.window for kind in self._kinds]
        self.is_compressed = any(kind.is_pooled for kind in self._kinds)
        """Whether the main sequence can go on only where it ended: layers hold the sum of a block."""
        self.pools = Pools(spec, profile, device, self.rung(positions), log or (lambda line: None))
        """The pages."""
        self._hold_nothing()

    @property
    def capacity(self) -> int:
        """Positions that the allocated pages hold in layers that see all keys."""
        return self.pools.capacity

    @property
    def held(self) -> int:
        """Positions of the main sequence, from 0 up, whose keys and values are valid."""
        return self.main.held

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Lengths at which the main sequence can go on although windows have moved past them."""
        return tuple(snapshot.held for snapshot in self._snapshots)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the pools and bounds, 0 before the first step."""
        return self.pools.allocated_bytes

    @property
    def live_bytes(self) -> int:
        """Bytes of the main sequence's positions that a later row can still see: keys, pooled blocks, and the
        sum of the block that is filling."""
        seen = sum(self._cells_seen(layer) for layer in range(self._spec.layers))
        return self.pools.position_bytes * seen + (self.pools.sum_bytes if self.held else 0)

    @property
    def pages_in_use(self) -> tuple[int, ...]:
        """Pages of each kind of layer that a sequence, fork or snapshot holds."""
        return tuple(allocator.pages - allocator.free for allocator in self._allocators)

    def free_pages(self) -> list[int]:
        """Pages of each kind of layer that nobody holds."""
        return [allocator.free for allocator in self._allocators]

    def rung(self, positions: int) -> int:
        """The capacity that holds so many positions, or the context where that is less."""
        return capacity_rung(min(positions, self._context), self._context, self._profile.page_size)

    def usable(self, length: int) -> int:
        """The most positions, up to `length`, after which the main sequence can go on."""
        ends = [min(length, source.held) for source in self._sources() if self._serves(source, length)]
        return max(ends, default=0)

    def keep(self, length: int) -> None:
        """Keeps what is usable of the first `length` positions of the main sequence."""
        self._go_back(self.usable(length))

    def begin(self, length: int, positions: int, limit: int | None = None) -> None:
        """Keeps the first `length` positions of the main sequence and makes room for `positions` in all.

        Args:
            length: 0, or a length that `usable` has returned; later positions are forgotten.
            positions: positions to have room for; one rung of the capacity ladder holds them.
            limit: most positions that the ladder may reach; the context by default.

        Raises:
            RunError: there is no memory for it; the first `length` positions are still held.
        """
        self._go_back(length)
        self._reserve(capacity_rung(positions, limit or self._context, self._profile.page_size))

    def ensure(self, positions: int) -> None:
        """Makes room for more positions of a sequence whose end is not known: at least doubles if it grows.

        Raises:
            ValueError: more positions than the context has.
            RunError: there is no memory for it; what was held is still held.
        """
        if positions > self._context:
            raise ValueError(f"{positions} positions are above the context of {self._context}")
        if positions > self.capacity:
            self._reserve(self.rung(max(positions, 2 * self.capacity)))

    @_whole
    def open(self, sequence: PagedSequence, first: int, count: int) -> None:
        """Makes positions first … first + count − 1 of a sequence writable, and lets go of what lies behind
        the windows of these rows.

        Raises:
            MemoryError: too few pages are free.
        """
        sequence.slide(first)
        while self._snapshots and any(
            needed > free
            for needed, free in zip(sequence.needs(first, count), self.free_pages(), strict=True)
        ):
            self._snapshots.pop(0).release()
        self.pools.copy(sequence.extend(first, count))
        if self.is_compressed:
            # A step moves the sums of blocks on: until it has finished there is nothing to go back to.
            sequence.held = 0

    def advance(self, held: int) -> None:
        """Says that a step has finished and the main sequence's positions 0 … held − 1 are valid."""
        self.main.held = held

    @_whole
    def fork(self, length: int) -> PagedSequence:
        """A sequence that begins with the first `length` positions of the main one, sharing its pages."""
        fork = self.main.fork(length)
        self._forks.append(fork)
        return fork

    @_whole
    def drop_forks(self) -> None:
        """Lets go of all forks."""
        for fork in self._forks:
            fork.release()
        self._forks.clear()

    @_whole
    def take_snapshot(self, length: int) -> None:
        """Keeps the window pages of the main sequence at `length`, where there are windows; the oldest
        snapshot goes if there are too many."""
        if not any(self._windows) or not self.main.serves(length) or self.is_compressed:
            return
        for snapshot in [s for s in self._snapshots if s.held == length]:
            self._snapshots.remove(snapshot)
            snapshot.release()
        snapshot = self.main.fork(length)
        for window, table in zip(self._windows, snapshot.tables, strict=True):
            if not window:
                table.release()  # the main sequence holds all of these as long as it has this prefix
        self._snapshots.append(snapshot)
        if len(self._snapshots) > SNAPSHOTS:
            self._snapshots.pop(0).release()

    @_whole
    def drop_snapshots(self) -> None:
        """Lets go of all snapshots."""
        for snapshot in self._snapshots:
            snapshot.release()
        self._snapshots.clear()

    @_whole
    def adopt(self, other: Cache) -> None:
        """Holds a copy of what another cache's main sequence and its snapshots hold.

        Raises:
            InputError: its pages are of another shape.
        """
        self.pools.adopt(other.pools)
        # One copy of all of them: tables go on sharing their allocators.
        self._allocators, self.main, self._snapshots = copy.deepcopy(
            (other._allocators, other.main, other._snapshots)
        )

    def drop(self) -> None:
        """Forgets the contents and frees the pages; the next step makes new ones."""
        self._hold_nothing()
        self.pools.drop()

    def run(self, step: Callable[[Pages], tuple[Any, Pages]]) -> Any:
        """Runs a step on the pages and waits for it. If it fails and the pages are lost, nothing is held."""
        try:
            return self.pools.run(step)
        except BaseException:
            if not self.pools.are_there:
                self._hold_nothing()
            raise

    def _cells_seen(self, layer: int) -> int:
        """Cells of a layer that a later row can still see."""
        policy = self._profile.policy
        if policy.is_decode_only or not policy.applies_to(self._spec, layer):
            return min(self.held, self._spec.window_of(layer) or self.held)
        return policy.positions_read(self.held - 1) if self.held else 0

    def _pool_pages(self, capacity: int) -> list[int]:
        return [kind.pages(capacity, self._profile.page_size) for kind in self._kinds]

    def _sources(self) -> list[PagedSequence]:
        return [self.main, *self._snapshots]

    def _serves(self, source: PagedSequence, length: int) -> bool:
        """Whether the sequence can go on at `length`, or the source's end, with the source's window pages."""
        end = min(length, source.held)
        if self.is_compressed and end != source.held:
            return False  # the sum of the block that is filling is that of the last row
        tables = zip(self._windows, self.main.tables, source.tables, strict=True)
        return all((own if window else main).serves(end) for window, main, own in tables)

    @_whole
    def _go_back(self, length: int) -> None:
        """The main sequence's first `length` positions, from its own pages or from a snapshot's."""
        if not length:
            self.main.release()
        sources = [s for s in self._sources() if length <= s.held and self._serves(s, length)]
        source = sources[0] if length else self.main
        if source is not self.main:
            for window, table, kept in zip(self._windows, self.main.tables, source.tables, strict=True):
                if window:
                    table.become(kept)
        self.main.cut(length)
        self.main.held = length
        self._cut_snapshots(length)

    def _cut_snapshots(self, length: int) -> None:
        """Snapshots of what is no longer a prefix go, or are cut to what still is."""
        for snapshot in [s for s in self._snapshots if s.held > length]:
            if length and self._serves(snapshot, length) and length not in self.snapshots:
                snapshot.cut(length)
            else:
                self._snapshots.remove(snapshot)
                snapshot.release()

    def _hold_nothing(self) -> None:
        self._allocators = [PageAllocator(pages) for pages in self._pool_pages(self.capacity)]
        self.main = PagedSequence.empty(self._kinds, self._allocators, self._profile.page_size)
        """The sequence that a session works on."""
        self._forks: list[PagedSequence] = []
        self._snapshots: list[PagedSequence] = []

    def _reserve(self, capacity: int) -> None:
        """Pools of at least the given capacity."""
        if capacity <= self.capacity:
            return
        if not self.held:
            self.drop()
        self.pools.grow(capacity)
        self._grow_allocators()

    @_whole
    def _grow_allocators(self) -> None:
        for allocator, pages in zip(self._allocators, self._pool_pages(self.capacity), strict=True):
            allocator.grow(pages)
