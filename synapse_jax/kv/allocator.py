"""Host bookkeeping of pages: which are free, which belong to whom. No jax."""

from __future__ import annotations


class PageAllocator:
    """Hands out page indices of a pool and takes them back.

    Lowest free index first, so that a run is repeatable.
    """

    def __init__(self, pages: int):
        self._free = list(range(pages))
        self._pages = pages

    @property
    def pages(self) -> int:
        """P, pages in the pool."""
        return self._pages

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """The `count` lowest free pages.

        Raises:
            MemoryError: fewer are free; nothing is taken.
        """
        if count > len(self._free):
            raise MemoryError(f"{count} pages asked for, {len(self._free)} of {self._pages} free")
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give_back(self, pages: list[int]) -> None:
        """Returns pages to the pool.

        Raises:
            ValueError: a page is not in the pool or is free already; nothing is returned.
        """
        if (
            len(set(pages)) < len(pages)
            or set(pages) & set(self._free)
            or not set(pages) <= set(range(self._pages))
        ):
            raise ValueError(f"pages {pages} are not all held")
        self._free = sorted(self._free + pages)

    def grow(self, pages: int) -> None:
        """Adds free pages at the end of a pool that has become larger.

        Raises:
            ValueError: the pool would shrink.
        """
        if pages < self._pages:
            raise ValueError(f"a pool of {self._pages} pages cannot shrink to {pages}")
        self._free += range(self._pages, pages)
        self._pages = pages
