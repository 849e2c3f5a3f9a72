"""Sequences in pools for tests that go below the session."""

from __future__ import annotations

import numpy as np

from synapse_jax.ir.nodes import ModelIR
from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.kinds import cache_kinds
from synapse_jax.kv.sequence import PagedSequence


class ShuffledAllocator(PageAllocator):
    """Hands out free pages in a random order, as a pool that has been used for long would."""

    def __init__(self, pages: int, seed: int = 0):
        super().__init__(pages)
        self._random = np.random.RandomState(seed)

    def take(self, count: int) -> list[int]:
        if count > self.free:
            return super().take(count)  # refuses
        pages = self._random.permutation(super().take(self.free)).tolist()
        self.give_back(pages[count:])
        return pages[:count]


def new_sequence(ir: ModelIR, capacity: int, allocator: type[PageAllocator] = PageAllocator) -> PagedSequence:
    """A sequence without positions, alone in pools of a capacity."""
    size = ir.profile.page_size
    kinds = cache_kinds(ir.spec, ir.profile)
    allocators = [allocator(kind.pages(capacity, size)) for kind in kinds]
    return PagedSequence.empty(kinds, allocators, size)
