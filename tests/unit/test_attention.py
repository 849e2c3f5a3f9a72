"""Paged attention against a float64 evaluation, and its exact no-ops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.kv.pages import write_rows
from synapse_jax.ops import attention
from synapse_jax.ops.attention.xla import softmax_block

C, K, H = 16, 2, 8


def float64_attention(q, k, v, positions, scale, window=10**9):
    """Plain softmax over the last `window` keys up to each row's position, in float64."""
    rows, heads, size = q.shape
    out = np.zeros((rows, heads, size))
    for row, position in enumerate(positions):
        for head in range(heads):
            kv = head // (heads // k.shape[1])
            seen = slice(max(0, position + 1 - window), position + 1)
            s = k[seen, kv].astype(np.float64) @ q[row, head].astype(np.float64) * scale
            p = np.exp(s - s.max())
            out[row, head] = p @ v[seen, kv].astype(np.float64) / p.sum()
    return out.reshape(rows, heads * size)


def filled_pool(pages, tables, keys, values):
    """A pool with poison in every cell that no sequence owns."""
    pool = jnp.full((pages, C, 2, K, H), 1e9, jnp.float32)
    for table, k, v in zip(tables, keys, values, strict=True):
        positions = np.arange(len(k))
        pool = write_rows(pool, jnp.asarray(k), jnp.asarray(v), jnp.asarray(np.array(table)[positions // C]),
                          jnp.asarray((positions % C).astype(np.int32)))  # fmt: skip
    return pool


@pytest.fixture
def random():
    return np.random.RandomState(0)


@pytest.mark.parametrize("implementation", attention.IMPLEMENTATIONS)
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("length", [1, C - 1, C, C + 1, 3 * C + 5])
def test_attention_matches_float64(random, implementation, group, length):
    k, v = (random.randn(length, K, H).astype(np.float32) for _ in range(2))
    table = [3, 0, 2, 1][: -(-length // C)]
    pool = filled_pool(4, [table], [k], [v])
    positions = np.arange(length, dtype=np.int32)
    q = (3 * random.randn(length, K * group, H)).astype(np.float32)
    out = attention.IMPLEMENTATIONS[implementation](
        jnp.asarray(q), pool, jnp.asarray([table], dtype=jnp.int32), jnp.zeros(length, jnp.int32),
        jnp.asarray(positions), 0.5,
    )  # fmt: skip
    assert np.abs(np.asarray(out) - float64_attention(q, k, v, positions, 0.5)).max() < 1e-5


COMPILED = {
    name: jax.jit(function, static_argnums=(5, 6)) for name, function in attention.IMPLEMENTATIONS.items()
}
WINDOWS = [1, C - 1, C, 2 * C + 3]


def attend_step(implementation, q, pool, table, positions, window, rows):
    """One step of `rows` rows, the last of them padding."""
    padding = rows - len(positions)
    q = np.pad(q, ((0, padding), (0, 0), (0, 0)))
    position = np.pad(positions.astype(np.int32), (0, padding), constant_values=-1)
    sequence = np.where(position < 0, -1, 0).astype(np.int32)
    out = np.asarray(COMPILED[implementation](
        jnp.asarray(q), pool, jnp.asarray([table], dtype=jnp.int32), jnp.asarray(sequence),
        jnp.asarray(position), 0.5, window,
    ))  # fmt: skip
    assert not out[len(positions) :].any()
    return out[: len(positions)]


@pytest.mark.parametrize("implementation", attention.IMPLEMENTATIONS)
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_match_float64_in_steps_of_any_size(random, implementation, window):
    """Rows at both sides of every page's and every step's edge; steps of 32, 64 and 512 agree in all bits."""
    length = 5 * C + 3
    k, v = (random.randn(length, K, H).astype(np.float32) for _ in range(2))
    table = [3, 0, 5, 2, 1, 4]
    pool = filled_pool(6, [table], [k], [v])
    q = (3 * random.randn(length, 2 * K, H)).astype(np.float32)
    positions = np.arange(length, dtype=np.int32)
    whole = attend_step(implementation, q, pool, table, positions, window, 512)
    assert np.abs(whole - float64_attention(q, k, v, positions, 0.5, window)).max() < 1e-5
    for rows in (32, 64):
        for first in range(0, length, rows):
            here = slice(first, first + rows)
            step = attend_step(implementation, q[here], pool, table, positions[here], window, rows)
            assert np.array_equal(step, whole[here])
    for row in (0, 1, C - 1, C, C + 1, 31, 32, 33, 4 * C, length - 1):
        one = attend_step(implementation, q[row : row + 1], pool, table, positions[row : row + 1], window, 1)
        assert np.abs(one - whole[row]).max() < 1e-5


@pytest.mark.parametrize("implementation", attention.IMPLEMENTATIONS)
@pytest.mark.parametrize("window", [1, 2, C, C + 1, 2 * C + 3])
def test_a_window_is_exactly_so_many_keys(implementation, window):
    """With equal scores a row is the mean of the values that it sees; each value has a bit of its own."""
    length, size = 5 * C + 3, 8
    k, table = np.zeros((length, K, size), np.float32), [3, 0, 5, 2, 1, 4]
    # Dimension d counts the keys of the d-th eighth of the sequence, each with a bit of its own.
    v = np.zeros((length, K, size), np.float32)
    keys = np.arange(length)
    v[keys, :, keys // 11] = 2.0 ** (keys % 11)[:, None]
    pool = filled_pool(6, [table], [k], [v])
    q = np.ones((length, K, size), np.float32)
    positions = np.arange(length)
    out = np.concatenate([
        attend_step(implementation, q[here], pool, table, positions[here], window, 32).reshape(-1, K, size)
        for here in (slice(0, 32), slice(32, 64), slice(64, length))
    ])  # fmt: skip
    for position in positions:
        seen = (positions <= position) & (positions > position - window)
        assert seen.sum() == min(window, position + 1)
        np.testing.assert_allclose(out[position] * seen.sum(), v[seen].sum(0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("window", [0, 9])
def test_sequences_padding_and_pool_order_change_no_bit(random, window):
    """Rows of two sequences and padding in one step equal each sequence alone, in another pool order."""
    lengths = (20, 40)
    keys, values = ([random.randn(n, K, H).astype(np.float32) for n in lengths] for _ in range(2))
    tables = [[5, 1], [0, 4, 2]]
    pool = filled_pool(6, tables, keys, values)
    q = random.randn(64, 2 * K, H).astype(np.float32)
    sequence = np.full(64, -1, np.int32)
    position = np.full(64, -1, np.int32)
    sequence[:20], position[:20] = 0, np.arange(20)
    sequence[20:60], position[20:60] = 1, np.arange(40)
    table = jnp.asarray([[5, 1, 0], [0, 4, 2]], dtype=jnp.int32)
    together = attention.xla(
        jnp.asarray(q), pool, table, jnp.asarray(sequence), jnp.asarray(position), 0.3, window
    )
    assert np.isfinite(together).all() and not np.asarray(together[60:]).any()

    alone_pool = filled_pool(3, [[2, 0, 1]], keys[1:], values[1:])
    sequence = np.where(sequence == 1, 0, -1).astype(np.int32)
    position = np.where(sequence == 0, position, -1).astype(np.int32)
    table = jnp.asarray([[2, 0, 1]], dtype=jnp.int32)
    alone = attention.xla(
        jnp.asarray(q), alone_pool, table, jnp.asarray(sequence), jnp.asarray(position), 0.3, window
    )
    assert np.array_equal(together[20:60], alone[20:60])


def test_a_fully_masked_block_is_an_exact_no_op(random):
    q, k, v = (jnp.asarray(random.randn(K, rows, H).astype(np.float32)) for rows in (32, C, C))
    v = v.transpose(0, 2, 1)
    nothing = jnp.zeros((32, C), bool)
    state = (jnp.full((K, 32), -jnp.inf), jnp.zeros((K, 32, H + 1)))
    for _ in range(2):
        masked = softmax_block(state, q, 1e9 * k, 1e9 * v, nothing)
        assert all(np.array_equal(a, b) for a, b in zip(state, masked, strict=True))
        state = softmax_block(state, q, k, v, ~nothing)
