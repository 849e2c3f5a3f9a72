"""A page table: where a sequence's keys and values lie in one kind of pool. No jax."""

from __future__ import annotations

import copy

import numpy as np

from synapse_jax.kv.allocator import PageAllocator

Copy = tuple[int, int]
"""(source page, target page)."""


class PageTable:
    """Pages of consecutive positions of one sequence.

    Page m of a sequence holds its positions m·C … m·C + C − 1. A table holds pages `first` … `end` − 1; those
    before lie behind the window. Tables may share pages; a shared page is never written.

    Args:
        allocator: of the pool.
        page_size: C.
        window: keys that a row sees, its own included; 0 means all.
    """

    def __init__(self, allocator: PageAllocator, page_size: int, window: int):
        self._allocator, self._page_size, self._window = allocator, page_size, window
        self._first = 0
        self._pages: list[int] = []

    @property
    def first(self) -> int:
        """Index of the first page held."""
        return self._first

    @property
    def end(self) -> int:
        """One past the index of the last page held."""
        return self._first + len(self._pages)

    def row(self, places: int) -> np.ndarray:
        """int32 [M]: the page of each index; 0 where none is held."""
        row = np.zeros(places, np.int32)
        row[self._first : self.end] = self._pages
        return row

    def serves(self, length: int) -> bool:
        """Whether a sequence can go on at position `length`: every key that a row there sees is held."""
        oldest = max(length - self._window + 1, 0) if self._window else 0
        return self._first * self._page_size <= oldest and length <= self.end * self._page_size

    def slide(self, position: int) -> None:
        """Lets go of the pages that no row from `position` on can see."""
        if self._window:
            oldest = max(position - self._window + 1, 0) // self._page_size
            self._let_go(0, min(max(oldest - self._first, 0), len(self._pages)))
            self._first = max(self._first, oldest)

    def needs(self, first: int, count: int) -> int:
        """Free pages that `extend` would take."""
        shared = sum(self._is_shared(m) for m in self._touched(first, count) if m < self.end)
        return shared + max(self._touched(first, count).stop - self.end, 0)

    def extend(self, first: int, count: int) -> list[Copy]:
        """Makes positions first … first + count − 1 writable by this table alone; count is at least 1.

        Returns:
            The copies to make before anything is written, of shared pages that hold positions below `first`.

        Raises:
            MemoryError: too few pages are free; nothing has changed.
        """
        touched = self._touched(first, count)
        assert self._first <= touched.start <= self.end, "positions are held without gaps"
        taken = self._allocator.take(self.needs(first, count))
        copies = []
        for m in touched:
            if m == self.end:
                self._pages.append(taken.pop(0))
            elif self._is_shared(m):
                old, new = self._pages[m - self._first], taken.pop(0)
                self._allocator.give_back([old])
                self._pages[m - self._first] = new
                if m * self._page_size < first:
                    copies.append((old, new))
        return copies

    def cut(self, length: int) -> None:
        """Lets go of the pages beyond the first `length` positions."""
        end = max(self._touched(0, length).stop, self._first)
        self._let_go(min(end - self._first, len(self._pages)), len(self._pages))

    def fork(self, length: int) -> PageTable:
        """A table of the first `length` positions that shares this one's pages."""
        fork = copy.copy(self)
        fork._pages = list(self._pages)
        self._allocator.share(self._pages)
        fork.cut(length)
        return fork

    def become(self, other: PageTable) -> None:
        """Lets go of all pages and shares those of another table."""
        self._allocator.share(other._pages)
        self.release()
        self._first, self._pages = other._first, list(other._pages)

    def release(self) -> None:
        """Lets go of all pages."""
        self._let_go(0, len(self._pages))
        self._first = 0

    def _touched(self, first: int, count: int) -> range:
        return _pages_of(first, count, self._page_size)

    def _is_shared(self, m: int) -> bool:
        return self._allocator.holders(self._pages[m - self._first]) > 1

    def _let_go(self, start: int, stop: int) -> None:
        self._allocator.give_back(self._pages[start:stop])
        del self._pages[start:stop]


class PooledTable(PageTable):
    """Pages of the pooled blocks of one sequence: page m holds blocks m·C … m·C + C − 1.

    Positions are still those of tokens: writing one fills in the block of the key that leaves the window.

    Args:
        allocator: of the pool.
        page_size: C.
        window: newest keys, which are not pooled.
        block: b, keys a block.
    """

    def __init__(self, allocator: PageAllocator, page_size: int, window: int, block: int):
        super().__init__(allocator, page_size, 0)
        self._exact, self._block = window, block

    def serves(self, length: int) -> bool:
        """Whether the blocks of the keys that have left the window of `length` positions are held."""
        return self._touched(0, length).stop <= self.end

    def _touched(self, first: int, count: int) -> range:
        start, stop = max(first - self._exact, 0), max(first + count - self._exact, 0)
        if start == stop:
            return range(start // self._block // self._page_size, 0)
        blocks = start // self._block, (stop - 1) // self._block
        return _pages_of(blocks[0], blocks[1] - blocks[0] + 1, self._page_size)


def _pages_of(first: int, count: int, page_size: int) -> range:
    return range(first // page_size, (first + count - 1) // page_size + 1)
