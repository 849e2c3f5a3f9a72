"""Bounds of keys: exact over the positions that are held, and never below a product (AC-006-1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_jax.kv.bounds import update_bounds
from synapse_jax.kv.pages import DTYPES, from_cells, to_cells, write_rows
from synapse_jax.ops.attention.selection import bound_scores

C, E, K, H, P = 16, 4, 2, 8, 5
TABLE = np.array([3, 0, 4, 1], np.int32)
LONGEST = C * len(TABLE)
POISON = {"f32": 1e9, "bf16": 1e9, "f16": 6e4}


@jax.jit
def write(pool, bounds, k_TKH, page_T, cell_T):
    pool = write_rows(pool, k_TKH, k_TKH, page_T, cell_T)
    return pool, update_bounds(bounds, pool, page_T, cell_T, 1)


SCORES = jax.jit(bound_scores)


def written(kv_dtype: str, keys: np.ndarray, writes) -> tuple[np.ndarray, int]:
    """Bounds [U, 2, K, H] after some writes, and the length in the end.

    Each write takes up `count` rows from `first` on, with `keys` shifted by `shift`; what a later one begins
    before was cut. All cells hold poison at first.
    """
    pool = to_cells(jnp.full((P, C, 2, K, H), POISON[kv_dtype], jnp.float32), DTYPES[kv_dtype])
    bounds = jnp.full((P, C // E, 2, K, H), POISON[kv_dtype], jnp.float32)
    held = np.zeros((LONGEST, K, H), np.float32)
    end = 0
    for first, count, shift in writes:
        first = min(first, end)
        end = min(first + count, LONGEST)
        for start in range(first, end, 8):
            at = np.arange(start, min(start + (8 if count > 1 else 1), end))
            size = 8 if count > 1 else 1
            k = np.zeros((size, K, H), np.float32)
            k[: len(at)] = keys[at] + np.float32(shift)
            page, cell = np.full(size, P, np.int32), np.zeros(size, np.int32)
            page[: len(at)], cell[: len(at)] = TABLE[at // C], at % C
            pool, bounds = write(pool, bounds, k, page, cell)
            held[at] = np.asarray(from_cells(to_cells(jnp.asarray(k[: len(at)]), DTYPES[kv_dtype])))
    return np.asarray(bounds)[TABLE].reshape(-1, 2, K, H), held[:end]


numbers = st.floats(-8, 8, width=32) | st.sampled_from([3e4, -3e4, 1e-30, -1e-30, 0.0])
arrays = st.integers(0, 2**31 - 1).map(lambda seed: np.random.RandomState(seed))


@settings(max_examples=60, deadline=None)
@given(
    arrays,
    st.lists(numbers, min_size=6, max_size=6),
    st.lists(
        st.tuples(st.integers(0, LONGEST), st.integers(1, 40), st.sampled_from([0.0, 100.0, -100.0])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(list(DTYPES)),
)
def test_key_bound_never_underestimates(random, outliers, writes, kv_dtype):
    keys = random.randn(LONGEST, K, H).astype(np.float32)
    for value in outliers:
        keys[random.randint(LONGEST), random.randint(K), random.randint(H)] = value
    bounds, held = written(kv_dtype, keys, writes)
    q = (4 * random.randn(K, 3, H)).astype(np.float32)
    q.flat[random.randint(q.size, size=3)] = outliers[:3]
    scores = np.asarray(SCORES(q, bounds))
    for u in range(-(-len(held) // E)):
        page = held[u * E : (u + 1) * E]
        # Exact: neither poison nor what was cut has entered, and nothing was rounded inwards.
        assert np.array_equal(bounds[u], np.stack([page.min(0), page.max(0)]))
        for key in page:
            # The product in the same order of additions, which is that of a page of one key ...
            as_page = np.zeros_like(bounds)
            as_page[u] = key
            assert (scores[:, :, u] >= np.asarray(SCORES(q, as_page))[:, :, u]).all()
            # ... and the true one, but for what rounding may take off.
            exact = np.einsum("kgh,kh->kg", q.astype(np.float64), key.astype(np.float64))
            size = np.einsum("kgh,kh->kg", np.abs(q).astype(np.float64), np.abs(key).astype(np.float64))
            assert (scores[:, :, u] >= exact - 1e-6 * size).all()


@pytest.mark.parametrize("sequences", [1, 3])
def test_bounds_of_several_sequences_in_one_step(sequences):
    """Rows of sequences that end within a page, side by side, with padding behind them."""
    random = np.random.RandomState(0)
    lengths = (7, 1, 12)[:sequences]
    pool = jnp.full((P, C, 2, K, H), 1e9, jnp.float32)
    bounds = jnp.full((P, C // E, 2, K, H), 1e9, jnp.float32)
    keys = random.randn(32, K, H).astype(np.float32)
    page, cell, row = np.full(32, P, np.int32), np.zeros(32, np.int32), 0
    places = []
    for index, length in enumerate(lengths):
        page[row : row + length], cell[row : row + length] = index + 1, np.arange(length)
        places += [
            (index + 1, u, keys[row + u * E : row + min((u + 1) * E, length)]) for u in range(-(-length // E))
        ]
        row += length
    pool = write_rows(pool, jnp.asarray(keys), jnp.asarray(keys), jnp.asarray(page), jnp.asarray(cell))
    new = np.array(update_bounds(bounds, pool, jnp.asarray(page), jnp.asarray(cell), sequences))
    for at, u, held in places:
        assert np.array_equal(new[at, u], np.stack([held.min(0), held.max(0)]))
        new[at, u] = 1e9
    assert (new == 1e9).all()  # and no other page has changed
