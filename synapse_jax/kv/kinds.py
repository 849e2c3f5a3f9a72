"""Kinds of layers by what they keep of a sequence: each has pools of one size and a page table. No jax."""

from __future__ import annotations

import dataclasses

from synapse_jax.dims import MAX_STEP_ROWS
from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.sizes import pool_pages
from synapse_jax.kv.table import PageTable, PooledTable
from synapse_jax.spec.compressed import Compressed
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile


@dataclasses.dataclass(frozen=True, order=True)
class Kind:
    """What some layers keep. Layers that compress keep two: their newest keys, and the pooled blocks."""

    window: int
    """Newest keys that a row sees exactly; 0 means all."""
    block: int = 0
    """b, keys that are pooled into one when they have left the window; 0 where they are dropped."""
    is_pooled: bool = False
    """Whether it is the pooled blocks that are kept, one a cell, and not the keys."""

    def pages(self, capacity: int, page_size: int) -> int:
        """P of its pools.

        Args:
            capacity: positions, a multiple of the page size.
            page_size: C.
        """
        if self.is_pooled:
            blocks = -(-max(capacity - self.window, 0) // self.block)
            return max(-(-blocks // page_size), 1)
        if self.block:
            # The rows of a step lie in one page; the oldest key is the one that leaves at the first of them.
            return min(-(-self.window // page_size) + 1, capacity // page_size)
        return pool_pages(self.window, capacity, page_size)

    def table(self, allocator: PageAllocator, page_size: int) -> PageTable:
        """An empty page table."""
        if self.is_pooled:
            return PooledTable(allocator, page_size, self.window, self.block)
        # The key that leaves the window is read once more, to be pooled.
        return PageTable(allocator, page_size, self.window + 1 if self.block else self.window)


def layer_kind(spec: ModelSpec, profile: RuntimeProfile, layer: int) -> Kind:
    """What a layer keeps of its keys."""
    policy = profile.policy
    block = policy.block if isinstance(policy, Compressed) and policy.applies_to(spec, layer) else 0
    return Kind(policy.window_of(spec, layer), block)


def pooled(kind: Kind) -> Kind:
    """The pooled blocks beside the keys of a kind that compresses."""
    return dataclasses.replace(kind, is_pooled=True)


def cache_kinds(spec: ModelSpec, profile: RuntimeProfile) -> tuple[Kind, ...]:
    """The Y kinds of a cache, in order."""
    kinds = {layer_kind(spec, profile, layer) for layer in range(spec.layers)}
    return tuple(sorted(kinds | {pooled(kind) for kind in kinds if kind.block}))


def step_span(profile: RuntimeProfile) -> int:
    """Positions at whose multiples steps end: C under compression, whose pools are that small; else 0."""
    return profile.page_size if isinstance(profile.policy, Compressed) else 0


def step_rows(profile: RuntimeProfile) -> int:
    """Most rows of a step."""
    return min(MAX_STEP_ROWS, step_span(profile) or MAX_STEP_ROWS)
