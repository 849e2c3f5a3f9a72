"""Bounds of keys: the smallest and largest value of each dimension in each selection page of a pool."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.kv.pages import from_cells


def update_bounds(
    bounds_PJ2KH: jax.Array, pool_PC2KH: jax.Array, page_T: jax.Array, cell_T: jax.Array, sequences: int
) -> jax.Array:
    """The bounds after a step has written its rows.

    Those of a selection page that was written are taken anew from the cells as they are stored, up to the
    newest row: what lies behind it is nobody's, or of a sequence that was cut.

    Args:
        bounds_PJ2KH: float32, least at index 0 of the third axis and largest at 1. Float32 holds every KV
            dtype exactly, so nothing is rounded inwards.
        pool_PC2KH: the pool of the layer, the step's rows already written.
        page_T: int32 [T], the page of each row; P in padding. A sequence's rows lie together, in order.
        cell_T: int32 [T], the position within the page.
        sequences: B, sequences that the step may hold.
    """
    pages, parts, _, kv_heads, head_size = bounds_PJ2KH.shape
    size, rows = pool_PC2KH.shape[1] // parts, page_T.shape[0]
    bounds = bounds_PJ2KH.reshape(pages * parts, 2, kv_heads, head_size)
    at_T, newest_T = page_T * parts + cell_T // size, cell_T % size

    def update(at, newest, bounds):
        start = (at // parts, at % parts * size, 0, 0, 0)
        cells_1E2KH = lax.dynamic_slice(
            pool_PC2KH, start, (1, size, 2, kv_heads, head_size), allow_negative_indices=False
        )
        k_EKH = from_cells(cells_1E2KH[0, :, 0])
        is_held_E11 = (jnp.arange(size, dtype=jnp.int32) <= newest)[:, None, None]
        least_KH = jnp.min(jnp.where(is_held_E11, k_EKH, jnp.inf), axis=0)
        largest_KH = jnp.max(jnp.where(is_held_E11, k_EKH, -jnp.inf), axis=0)
        new = jnp.stack([least_KH, largest_KH])
        return lax.dynamic_update_index_in_dim(bounds, new, at, 0, allow_negative_indices=False)

    # Loops whose bodies depend on their index, over the pool in the shape that it was written in: where plain
    # operations, or another shape, read what was just written, XLA copies the pool, which is as slow as
    # attending to all of it.
    if rows == 1:
        stop = at_T[0] + (page_T[0] < pages).astype(jnp.int32)
        bounds = lax.fori_loop(at_T[0], stop, lambda at, bounds: update(at, newest_T[0], bounds), bounds)
        return bounds.reshape(bounds_PJ2KH.shape)
    is_newest_T = (at_T != jnp.append(at_T[1:], -1)) & (page_T < pages)
    # n consecutive positions touch at most n/E + 2 selection pages.
    touched = min(rows, rows // size + 2 * sequences)
    (row_X,) = jnp.nonzero(is_newest_T, size=touched, fill_value=0)
    count = jnp.sum(is_newest_T, dtype=jnp.int32)
    bounds = lax.fori_loop(
        0, count, lambda x, bounds: update(at_T[row_X[x]], newest_T[row_X[x]], bounds), bounds
    )
    return bounds.reshape(bounds_PJ2KH.shape)
