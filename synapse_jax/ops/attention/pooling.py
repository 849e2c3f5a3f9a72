"""Pooled blocks: what becomes of keys and values that leave the window of a layer that compresses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.kv.pages import from_cells, to_cells
from synapse_jax.ops.elementwise import rotate


def pool_leaving(
    pool_PC2KH: jax.Array,
    blocks_PC2KH: jax.Array,
    sum_2KH: jax.Array,
    page_table_M: jax.Array,
    block_table_M: jax.Array,
    position_T: jax.Array,
    window: int,
    to_midpoint: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The pooled blocks and the sum after a step has written its rows.

    The key at p − window leaves when the row at p has come. It is added to the sum of its block, turned to
    the block's midpoint, and the block's cell is set to the mean; until the block is whole no row sees it.
    Keys are added one after the other in the order of their positions, so the bits do not depend on how a
    sequence is cut into steps. A sum begins anew with every block, whatever it held.

    Args:
        pool_PC2KH: the layer's newest keys, rotated, and values, this step's rows already written.
        blocks_PC2KH: the pool of its pooled blocks.
        sum_2KH: float32, turned keys and values of the block that is filling.
        page_table_M: int32 [M], pages of the newest keys.
        block_table_M: int32 [M], pages of the pooled blocks.
        position_T: int32 [T], consecutive positions of one sequence, then −1 in padding.
        window: newest keys that a row sees exactly.
        to_midpoint: float32 [b, R] twice, cosines and sines of `spec.rope_table.turn_rows`.

    Returns:
        The new pool of blocks, and the new sum.
    """
    size, block = pool_PC2KH.shape[1], to_midpoint[0].shape[0]
    stored = blocks_PC2KH.dtype

    def leave(x, state):
        blocks, sum_2KH = state
        at = position_T[x] - window
        cell_2KH = from_cells(_read(pool_PC2KH, page_table_M[at // size], at % size))
        cos_1R, sin_1R = (lax.dynamic_slice_in_dim(angle, at % block, 1) for angle in to_midpoint)
        turned_2KH = jnp.stack([rotate(cell_2KH[:1], cos_1R, sin_1R)[0], cell_2KH[1]])
        sum_2KH = jnp.where(at % block == 0, 0, sum_2KH) + turned_2KH
        mean = to_cells(sum_2KH / block, stored)[None, None]
        index = at // block
        start = (block_table_M[index // size], index % size, 0, 0, 0)
        return lax.dynamic_update_slice(blocks, mean, start, allow_negative_indices=False), sum_2KH

    rows = jnp.sum(position_T >= 0, dtype=jnp.int32)
    first = jnp.clip(window - position_T[0], 0, rows)
    return lax.fori_loop(first, rows, leave, (blocks_PC2KH, sum_2KH))


def _read(pool_PC2KH: jax.Array, page: jax.Array, cell: jax.Array) -> jax.Array:
    """The keys and values [2, K, H] of one cell."""
    shape = (1, 1, *pool_PC2KH.shape[2:])
    start = (page, cell, 0, 0, 0)
    return lax.dynamic_slice(pool_PC2KH, start, shape, allow_negative_indices=False)[0, 0]
