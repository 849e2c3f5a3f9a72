"""Attention of whole sequences, every row at once: what the policies mean, in the plainest form.

Nothing is cached, so it can be differentiated. It is what attention over pages is tested against.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.ops.attention.xla import batched_dot, grouped_queries, ungrouped_rows, visible
from synapse_jax.ops.elementwise import rotate

Array = Any
"""An array of the device or the host."""


class Turns(NamedTuple):
    """Angles that turn the rotated keys of a block to its midpoint (`spec.rope_table.turn_rows`)."""

    cos_ER: Array
    """float32 [b, R]."""
    sin_ER: Array
    """float32 [b, R]."""


QUERY_ROWS = 128
"""Rows that `attend_sequence` takes at once. Keys that none of them sees are left out: of a causal mask
nearly half, of a window nearly all."""


def attend_sequence(
    q_SNH: jax.Array,
    k_SKH: jax.Array,
    v_SKH: jax.Array,
    scale: float,
    window: int = 0,
    turns: Turns | None = None,
) -> jax.Array:
    """Causal attention of all S positions of one sequence.

    Args:
        q_SNH: float32 queries, rotated.
        k_SKH: float32 keys, rotated.
        v_SKH: float32 values.
        scale: factor on q·k.
        window: a row sees its own key and the window − 1 before it; 0 means all keys 0 … position.
        turns: of b keys a block: rows then see the pooled blocks that left the window too, in the same
            softmax (`spec.compressed.Compressed`).

    Returns:
        float32 [S, N·H].
    """
    length = k_SKH.shape[0]
    pooled = None if turns is None else _pooled(k_SKH, v_SKH, turns)
    out = []
    for start in range(0, length, QUERY_ROWS):
        stop = min(start + QUERY_ROWS, length)
        position_T = jnp.arange(start, stop, dtype=jnp.int32)
        first = max(start - window + 1, 0) if window else 0
        columns = [_exact(k_SKH, v_SKH, first, stop, position_T, window)]
        if pooled is not None and turns is not None:
            left_T = position_T - window + 1
            columns.insert(0, _left_window(*pooled, turns.cos_ER.shape[0], left_T, stop - window))
        k_CKH, v_CKH, visible_TC = (
            jnp.concatenate(parts, axis=axis)
            for parts, axis in zip(zip(*columns, strict=True), (0, 0, 1), strict=True)
        )
        out.append(_softmax_rows(q_SNH[start:stop], k_CKH, v_CKH, visible_TC, scale))
    return jnp.concatenate(out)


def _exact(k_SKH, v_SKH, first: int, stop: int, position_T, window: int):
    """Keys and values `first` … `stop` − 1, and which of them each row sees [T, C]."""
    key_C = jnp.arange(first, stop, dtype=jnp.int32)
    return k_SKH[first:stop], v_SKH[first:stop], visible(key_C, position_T, window)


def _left_window(k_XKH, v_XKH, block: int, left_T, most_left: int):
    """The pooled blocks that some row sees, and which of them each row sees [T, X].

    Args:
        k_XKH: pooled keys.
        v_XKH: pooled values.
        block: b, keys a block.
        left_T: keys that have left each row's window; below 0 where the window is not full.
        most_left: the largest of `left_T`.
    """
    seen = max(most_left, 0) // block
    end_X = (jnp.arange(seen, dtype=jnp.int32) + 1) * block
    return k_XKH[:seen], v_XKH[:seen], end_X[None, :] <= left_T[:, None]


def _pooled(k_SKH: jax.Array, v_SKH: jax.Array, turns: Turns) -> tuple[jax.Array, jax.Array]:
    """Mean key, rotated at the block's midpoint, and mean value of every whole block, [X, K, H] each."""
    block = turns.cos_ER.shape[0]
    length, heads, size = k_SKH.shape
    blocks = length // block
    whole = blocks * block
    turned_SKH = rotate(
        k_SKH[:whole], jnp.tile(turns.cos_ER, (blocks, 1)), jnp.tile(turns.sin_ER, (blocks, 1))
    )
    k_XKH, v_XKH = (x.reshape(blocks, block, heads, size).mean(1) for x in (turned_SKH, v_SKH[:whole]))
    return k_XKH, v_XKH


def _softmax_rows(q_TNH, k_CKH, v_CKH, visible_TC, scale: float) -> jax.Array:
    """Attention of T rows to C columns, float32 [T, N·H].

    The row sum is a row of the P·V product, as in pages, and divides what is small. The maximum changes no
    result, so nothing is differentiated through it.
    """
    rows, kv_heads = q_TNH.shape[0], k_CKH.shape[1]
    group = q_TNH.shape[1] // kv_heads
    scores_KRC = batched_dot(grouped_queries(q_TNH, kv_heads, scale), k_CKH.transpose(1, 0, 2))
    scores_KRC = jnp.where(jnp.tile(visible_TC, (group, 1))[None], scores_KRC, -jnp.inf)
    top_KR1 = lax.stop_gradient(jnp.max(scores_KRC, axis=-1, keepdims=True))
    v_KHC = v_CKH.transpose(1, 2, 0)
    v1_KHC = jnp.concatenate([v_KHC, jnp.ones_like(v_KHC[:, :1])], axis=1)
    sums_KRH = batched_dot(jnp.exp(scores_KRC - top_KR1), v1_KHC)
    out_KRH = sums_KRH[..., :-1] / sums_KRH[..., -1:]
    return ungrouped_rows(out_KRH, rows)
