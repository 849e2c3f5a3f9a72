"""A sequence in the pools: a page table for each kind of layer. No jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.kinds import Kind
from synapse_jax.kv.table import Copy, PageTable


@dataclasses.dataclass
class PagedSequence:
    """Where the keys and values of one sequence lie."""

    tables: tuple[PageTable, ...]
    """Y page tables."""
    held: int = 0
    """Positions, from 0 up, whose keys and values are valid, as far as a window still reaches them."""

    @classmethod
    def empty(
        cls, kinds: Sequence[Kind], allocators: Sequence[PageAllocator], page_size: int
    ) -> PagedSequence:
        """A sequence without positions; one allocator a kind of layer."""
        return cls(
            tuple(kind.table(allocator, page_size) for kind, allocator in zip(kinds, allocators, strict=True))
        )

    def serves(self, length: int) -> bool:
        """Whether the sequence can go on at position `length`."""
        return length <= self.held and all(table.serves(length) for table in self.tables)

    def slide(self, position: int) -> None:
        """Lets go of the pages that no row from `position` on can see."""
        for table in self.tables:
            table.slide(position)

    def needs(self, first: int, count: int) -> list[int]:
        """Free pages of each kind that `extend` would take."""
        return [table.needs(first, count) for table in self.tables]

    def extend(self, first: int, count: int) -> list[list[Copy]]:
        """Makes positions first … first + count − 1 writable; returns the copies to make, by kind."""
        return [table.extend(first, count) for table in self.tables]

    def cut(self, length: int) -> None:
        """Keeps the first `length` positions, which it serves."""
        for table in self.tables:
            table.cut(length)
        self.held = min(self.held, length)

    def fork(self, length: int) -> PagedSequence:
        """A sequence of the first `length` positions that shares this one's pages."""
        return PagedSequence(tuple(table.fork(length) for table in self.tables), length)

    def release(self) -> None:
        """Lets go of everything."""
        for table in self.tables:
            table.release()
        self.held = 0
