"""How many pages the pools have. No jax.

Layers that see the same keys share a pool size and a page table: Y kinds of them, one for each of
`ModelSpec.windows`.
"""

from __future__ import annotations

from synapse_jax.dims import MAX_STEP_ROWS, SNAPSHOTS


def pool_pages(window: int, capacity: int, page_size: int) -> int:
    """P of the pools of layers with a window.

    A layer that sees all keys has pages for the whole capacity. A sliding one has them for what a step's
    rows can reach, once for the sequence and once for each snapshot.

    Args:
        window: keys that a row sees; 0 means all.
        capacity: positions, a multiple of the page size.
        page_size: C.
    """
    pages, rest = divmod(capacity, page_size)
    if rest:
        raise ValueError(f"capacity {capacity} is not a multiple of the page size {page_size}")
    return min(pages, (1 + SNAPSHOTS) * reach_pages(window, page_size)) if window else pages


def reach_pages(window: int, page_size: int) -> int:
    """Most pages that the rows of one step can reach through a window, wherever it begins."""
    return span_pages(window - 1 + MAX_STEP_ROWS, page_size)


def span_pages(positions: int, page_size: int) -> int:
    """Most pages that so many consecutive positions, at least one, can touch."""
    return (positions + page_size - 2) // page_size + 1
