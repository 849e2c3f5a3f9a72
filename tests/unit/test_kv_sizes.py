"""How many pages pools have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.dims import MAX_STEP_ROWS, SNAPSHOTS
from synapse_jax.kv.sizes import pool_pages, reach_pages, span_pages


@given(st.integers(1, 3000), st.integers(1, 300), st.integers(0, 1000))
def test_a_span_is_the_most_pages_that_positions_touch(positions, size, start):
    touched = (start + positions - 1) // size - start // size + 1
    assert touched <= span_pages(positions, size)
    worst = max((s + positions - 1) // size - s // size + 1 for s in range(size))
    assert worst == span_pages(positions, size)


@given(st.integers(1, 2000), st.sampled_from([16, 64, 256]), st.integers(0, 3000))
def test_a_step_reaches_no_further(window, size, first):
    oldest, newest = max(first - window + 1, 0), first + MAX_STEP_ROWS - 1
    assert newest // size - oldest // size + 1 <= reach_pages(window, size)


def test_pools_of_windows_do_not_grow_with_the_context():
    assert pool_pages(0, 65536, 64) == 1024
    assert pool_pages(40, 65536, 64) == pool_pages(40, 4096, 64) == (1 + SNAPSHOTS) * reach_pages(40, 64)
    assert pool_pages(40, 1024, 64) == 16  # never more than the positions there are
    with pytest.raises(ValueError, match="capacity 1000 is not a multiple of the page size 64"):
        pool_pages(0, 1000, 64)
