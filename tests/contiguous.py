"""The reference cache: one contiguous array a sequence, no pages, no table.

It runs the same key blocks in the same order as paged attention, so the two must agree to the bit.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from synapse_jax.graph.entry import Rows
from synapse_jax.kv.pages import DTYPES, from_cells, to_cells
from synapse_jax.ops.attention.xla import softmax_block, visible


def contiguous_cache(ir, positions: int):
    """Zeroed keys and values [S, 2, K, H] a layer in the KV dtype, for one sequence."""
    shape = (positions, 2, ir.spec.kv_heads, ir.spec.head_size)
    return tuple(jnp.zeros(shape, DTYPES[ir.profile.kv_dtype]) for _ in range(ir.spec.layers))


def contiguous_attention(block: int):
    """An attend function for `entry_function` with key blocks of `block` positions.

    Like attention over pages it reads no further than the step's last row.
    """

    def attend(cache, q_TNH, k_TKH, v_TKH, rows: Rows, scale: float, window: int):
        positions, _, kv_heads, size = cache.shape
        at_T = jnp.where(rows.position_T < 0, positions, rows.position_T)
        new = to_cells(jnp.stack([k_TKH, v_TKH], axis=1), cache.dtype)
        cache = cache.at[at_T].set(new, mode="drop")
        count, heads = q_TNH.shape[:2]
        group = heads // kv_heads
        q = (q_TNH * scale).reshape(count, kv_heads, group, size).transpose(1, 2, 0, 3)
        q = q.reshape(kv_heads, group * count, size)
        newest = jnp.tile(rows.position_T, group)

        def turn(index, state):
            start = index * block
            keys = from_cells(lax.dynamic_slice_in_dim(cache, start, block))
            k, v = keys[:, 0].transpose(1, 0, 2), keys[:, 1].transpose(1, 2, 0)
            seen = visible(start + jnp.arange(block, dtype=jnp.int32), newest, window)
            return softmax_block(state, q, k, v, seen)

        state = (jnp.full(q.shape[:2], -jnp.inf), jnp.zeros((*q.shape[:2], size + 1)))
        state = lax.fori_loop(0, jnp.max(rows.position_T) // block + 1, turn, state)
        out = state[1][..., :size] / jnp.maximum(state[1][..., size:], 1)
        out = out.reshape(kv_heads, group, count, size).transpose(2, 0, 1, 3)
        return out.reshape(count, heads * size), cache

    return attend
