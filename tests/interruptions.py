"""Work that is broken off part way."""

from __future__ import annotations

from collections.abc import Callable


def failing_after(position: int, error: type[BaseException]) -> Callable[[int, int], None]:
    """A progress callback that raises once more than `position` positions are done."""

    def fail(done: int, total: int) -> None:
        if done > position:
            raise error

    return fail
