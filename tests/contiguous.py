"""The reference cache: one contiguous array a sequence, no pages, no table.

It runs the same key blocks in the same order as paged attention, so the two must agree to the bit.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from synapse_jax.graph.entry import Rows
from synapse_jax.ops.attention.xla import softmax_block, visible


def contiguous_cache(spec, positions: int):
    """Zeroed keys and values [S, 2, K, H] a layer, for one sequence."""
    return tuple(jnp.zeros((positions, 2, spec.kv_heads, spec.head_size)) for _ in range(spec.layers))


def contiguous_attention(block: int):
    """An attend function for `entry_function` with key blocks of `block` positions."""

    def attend(cache, q_TNH, k_TKH, v_TKH, rows: Rows, scale: float, window: int):
        positions, _, kv_heads, size = cache.shape
        at_T = jnp.where(rows.position_T < 0, positions, rows.position_T)
        cache = cache.at[at_T].set(jnp.stack([k_TKH, v_TKH], axis=1), mode="drop")
        count, heads = q_TNH.shape[:2]
        group = heads // kv_heads
        q = (q_TNH * scale).reshape(count, kv_heads, group, size).transpose(1, 2, 0, 3)
        q = q.reshape(kv_heads, group * count, size)
        newest = jnp.tile(rows.position_T, group)
        state = (jnp.full(q.shape[:2], -jnp.inf), jnp.zeros((*q.shape[:2], size + 1)))
        for start in range(0, positions, block):
            k = lax.slice_in_dim(cache[:, 0], start, start + block).transpose(1, 0, 2)
            v = lax.slice_in_dim(cache[:, 1], start, start + block).transpose(1, 2, 0)
            keys = jnp.arange(start, start + block, dtype=jnp.int32)
            state = softmax_block(state, q, k, v, visible(keys, newest, window))
        out = state[1][..., :size] / jnp.maximum(state[1][..., size:], 1)
        out = out.reshape(kv_heads, group, count, size).transpose(2, 0, 1, 3)
        return out.reshape(count, heads * size), cache

    return attend
