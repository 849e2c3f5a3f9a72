"""What each row of compressed attention sees, against sets made from the definition in REQUIREMENTS."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.kinds import Kind, pooled
from synapse_jax.ops.attention.compressed import attend_compressed
from synapse_jax.ops.attention.pooling import pool_leaving
from synapse_jax.ops.attention.sequences import Turns, attend_sequence
from synapse_jax.runtime.plan import steps
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.compressed import Compressed, SlidingWindow

C, H = 16, 64
"""Cells a page, and as many tokens at most: values are one-hot, so that what comes out is what was read."""


def shares(length: int, window: int, block: int) -> np.ndarray:
    """[row, token]: the weight of each token where all keys score alike, by the definition."""
    out = np.zeros((length, H))
    for row in range(length):
        exact = range(max(row - window + 1, 0), row + 1)
        blocks = [i for i in range(length // block) if (i + 1) * block <= row - window + 1]
        out[row, exact] = 1
        for i in blocks:
            out[row, i * block : (i + 1) * block] += 1 / block
        out[row] /= len(exact) + len(blocks)
    return out


def one_hot(length: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values [length, 1, H]: every key scores 0."""
    zeros = jnp.zeros((length, 1, H), jnp.float32)
    return zeros, zeros, jnp.eye(length, H, dtype=jnp.float32)[:, None]


def still(block: int) -> Turns:
    """Turns by no angle."""
    return Turns(jnp.ones((block, 1), jnp.float32), jnp.zeros((block, 1), jnp.float32))


@functools.cache
def whole(window: int, block: int) -> np.ndarray:
    """[row, H] of the whole sequence at once."""
    return np.asarray(jax.jit(lambda *x: attend_sequence(*x, 1.0, window, still(block)))(*one_hot(H)))


@functools.cache
def step(window: int, block: int):
    """A jitted step: rows are written, what leaves is pooled, rows attend."""

    @jax.jit
    def run(pool, blocks, block_sum, q, k, v, tables, position, row):
        rows = pool.reshape(-1, 2, 1, H).at[row].set(jnp.stack([k, v], 1), mode="drop")
        pool = rows.reshape(pool.shape)
        blocks, block_sum = pool_leaving(pool, blocks, block_sum, *tables, position, window, still(block))
        out = attend_compressed(q, pool, blocks, *tables, position, 1.0, window, block)
        return pool, blocks, block_sum, out

    return run


def paged(length: int, window: int, block: int, cuts: list[int]) -> np.ndarray:
    """[row, H] of a sequence that is evaluated in steps which end at `cuts` and at pages."""
    kind = Kind(window, block)
    kinds = (kind, pooled(kind))
    pages = [k.pages(-(-length // C) * C, C) for k in kinds]
    allocators = [PageAllocator(count) for count in pages]
    tables = [k.table(allocator, C) for k, allocator in zip(kinds, allocators, strict=True)]
    # What a pool held before must not matter, but for NaN.
    pool, blocks = (jnp.full((count, C, 2, 1, H), 7, jnp.float32) for count in pages)
    block_sum, out, first = jnp.full((2, 1, H), 9, jnp.float32), [], 0
    q, k, v = (np.asarray(x) for x in one_hot(length))
    for end in sorted({*cuts, *range(C, length, C), length}):
        count = end - first
        for table in tables:
            table.slide(first)
            assert table.extend(first, count) == []
        position = np.full(C, -1, np.int32)
        position[:count] = np.arange(first, end)
        row = np.full(C, pages[0] * C, np.int32)
        row[:count] = tables[0].row(8)[position[:count] // C] * C + position[:count] % C
        new = [np.concatenate([x[first:end], np.zeros((C - count, 1, H), np.float32)]) for x in (q, k, v)]
        places = tuple(jnp.asarray(table.row(8)) for table in tables)
        pool, blocks, block_sum, step_out = step(window, block)(
            pool, blocks, block_sum, *new, places, position, row
        )
        out.append(np.asarray(step_out)[:count])
        first = end
    return np.concatenate(out)


SETTINGS = [(1, 1), (1, 5), (5, 3), (15, 7), (16, 4), (17, 8), (33, 9), (40, 2), (H, 4)]
"""(window, block): below a page, a page, above it, and all there is."""


@settings(max_examples=60)
@given(st.integers(1, H), st.integers(1, 70), st.integers(1, 20))
def test_every_token_is_counted_once_or_waits_for_its_block(length, window, block):
    expected = shares(length, window, block)
    for row in range(length):
        unseen = set(range(row + 1)) - set(np.flatnonzero(expected[row]).tolist())
        left = max(row - window + 1, 0)
        assert unseen == set(range(left - left % block, left))
        assert Compressed(window, block).blocks_seen(row) == left // block


@settings(max_examples=40)
@given(st.sampled_from(SETTINGS), st.integers(1, H), st.data())
def test_rows_see_what_the_definition_says_in_any_steps(setting, length, data):
    expected = shares(length, *setting)
    np.testing.assert_allclose(whole(*setting)[:length], expected, atol=1e-6)
    cuts = data.draw(st.lists(st.integers(1, length), max_size=6))
    np.testing.assert_allclose(paged(length, *setting, cuts), expected, atol=1e-6)


def test_the_policy_counts_what_its_mask_shows():
    for window, block in ((1, 1), (5, 3), (16, 4), (60, 8)):
        policy = Compressed(window, block)
        expected = shares(H, window, block)
        for row in range(H):
            largest = expected[row].max()  # an exact key's share, or that of a whole block
            assert policy.positions_read(row) == round(1 / largest)
    assert [SlidingWindow(5).positions_read(row) for row in (0, 3, 4, 9)] == [1, 4, 5, 5]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("window:", "window '' is not a whole number"),
        ("window:0", "window 0 is not an integer from 1 up"),
        ("window:-4", "window '-4' is not a whole number"),
        ("window:99999999999", "is not a whole number"),
        ("compressed:", "'' is not an option; the options are window, block"),
        ("compressed:window=64", "block must be given, in tokens"),
        ("compressed:window=64,block=0", "block 0 is not an integer from 1 up"),
        ("compressed:window=64,block=4,block=4", "block is there twice"),
        ("compressed:window=64,stride=4", "'stride=4' is not an option"),
    ],
)
def test_policies_that_cannot_be_are_refused(text, reason):
    with pytest.raises(InputError, match="attention") as error:
        parse_attention(text)
    assert reason in str(error.value)


def test_policies_have_one_text():
    assert str(parse_attention("compressed:block=4,window=064")) == "compressed:window=64,block=4"
    assert str(parse_attention("window:0256")) == "window:256"


def test_steps_end_at_pages_and_are_as_large_as_those():
    assert list(steps(1000, 512, 0, 256)) == [(0, 256), (256, 256), (512, 256), (768, 232)]
    assert list(steps(700, 512, 100, 256)) == [(100, 156), (256, 256), (512, 188)]
    assert list(steps(300, 512, 250, 256)) == [(250, 6), (256, 32), (288, 12)]
    assert list(steps(40, 1, 0, 16)) == [(0, 16), (16, 16), (32, 8)]
    tail = [(first, 32) for first in range(1024, 1184, 32)]
    assert list(steps(1200, 512)) == [(0, 512), (512, 512), *tail, (1184, 16)]
