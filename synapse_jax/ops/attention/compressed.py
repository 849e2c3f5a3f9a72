"""Attention over pooled blocks and the newest keys, in plain XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from synapse_jax.ops.attention.xla import (
    finished,
    grouped_queries,
    start_softmax,
    ungrouped_rows,
    visit_pages,
)


def attend_compressed(
    q_TNH: jax.Array,
    pool_PC2KH: jax.Array,
    blocks_PC2KH: jax.Array,
    page_table_M: jax.Array,
    block_table_M: jax.Array,
    position_T: jax.Array,
    scale: float,
    window: int,
    block: int,
) -> jax.Array:
    """Attention of rows of one sequence in one softmax (`spec.compressed.Compressed`).

    Pooled blocks come first, a page of them a turn, then the newest keys as in `attend_pages`: where no block
    is visible, the turns and so the bits are those of a layer with that window.

    Args:
        q_TNH: float32 [T, N, H], rotated.
        pool_PC2KH: the layer's newest keys and values, this step's rows already written.
        blocks_PC2KH: the pool of its pooled blocks, up to date.
        page_table_M: int32 [M], pages of the newest keys.
        block_table_M: int32 [M], pages of the pooled blocks.
        position_T: int32 [T], the row's own position; −1 in padding.
        scale: factor on q·k.
        window: newest keys that a row sees exactly, its own included.
        block: b, keys a block: block i is seen at row r if (i + 1)·b ≤ r − window + 1.

    Returns:
        float32 [T, N·H]; zeros in padding rows.
    """
    rows, query_heads, head_size = q_TNH.shape
    page_size, kv_heads = pool_PC2KH.shape[1], pool_PC2KH.shape[3]
    group = query_heads // kv_heads
    q_KRH = grouped_queries(q_TNH, kv_heads, scale)
    newest_R = jnp.tile(position_T, group)
    seen_R = jnp.maximum(newest_R - window + 1, 0) // block

    state = start_softmax(kv_heads, group * rows, head_size)
    end = (jnp.max(seen_R) + page_size - 1) // page_size
    state = visit_pages(state, q_KRH, blocks_PC2KH, block_table_M, 0, end, seen_R - 1, 0)
    oldest = jnp.maximum(position_T[0] - window + 1, 0)
    end = (jnp.max(position_T) + page_size) // page_size
    state = visit_pages(state, q_KRH, pool_PC2KH, page_table_M, oldest // page_size, end, newest_R, window)
    return ungrouped_rows(finished(state), rows)
