"""Host bookkeeping of pages: which are free, and how many hold each of the others. No jax."""

from __future__ import annotations

from collections.abc import Sequence


class PageAllocator:
    """Hands out page indices of a pool, counts who holds each, and takes them back.

    Lowest free index first, so that a run is repeatable.
    """

    def __init__(self, pages: int):
        self._free = list(range(pages))
        self._holders = [0] * pages

    @property
    def pages(self) -> int:
        """P, pages in the pool."""
        return len(self._holders)

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def holders(self, page: int) -> int:
        """How many hold a page."""
        return self._holders[page]

    def take(self, count: int) -> list[int]:
        """The `count` lowest free pages, now held once.

        Raises:
            MemoryError: fewer are free; nothing is taken.
        """
        if count > len(self._free):
            raise MemoryError(f"{count} pages asked for, {len(self._free)} of {self.pages} free")
        taken, self._free = self._free[:count], self._free[count:]
        for page in taken:
            self._holders[page] = 1
        return taken

    def share(self, pages: Sequence[int]) -> None:
        """Holds pages once more that are held already.

        Raises:
            ValueError: a page is free; nothing is shared.
        """
        self._check_held(pages)
        for page in pages:
            self._holders[page] += 1

    def give_back(self, pages: Sequence[int]) -> None:
        """Lets go of pages; one that nobody else holds becomes free.

        Raises:
            ValueError: a page is named twice or is free already; nothing is returned.
        """
        self._check_held(pages)
        for page in pages:
            self._holders[page] -= 1
        self._free = sorted(self._free + [page for page in pages if not self._holders[page]])

    def grow(self, pages: int) -> None:
        """Adds free pages at the end of a pool that has become larger.

        Raises:
            ValueError: the pool would shrink.
        """
        if pages < self.pages:
            raise ValueError(f"a pool of {self.pages} pages cannot shrink to {pages}")
        self._free += range(self.pages, pages)
        self._holders += [0] * (pages - self.pages)

    def _check_held(self, pages: Sequence[int]) -> None:
        held = all(0 <= page < self.pages and self._holders[page] for page in pages)
        if not held or len(set(pages)) < len(pages):
            raise ValueError(f"pages {list(pages)} are not all held")
