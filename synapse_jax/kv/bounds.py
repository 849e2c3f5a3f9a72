"""Bounds of keys: the smallest and largest value of each dimension in each selection page of a pool."""

from __future__ import annotations

import jax
import jax.numpy as jnp

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
    at_T = page_T * parts + cell_T // size
    is_newest_T = (at_T != jnp.append(at_T[1:], -1)) & (page_T < pages)
    # n consecutive positions touch at most n/E + 2 selection pages.
    touched = rows // size + 2 * sequences
    if touched < rows:
        (row_X,) = jnp.nonzero(is_newest_T, size=touched, fill_value=rows)
        at_X = at_T.at[row_X].get(mode="fill", fill_value=pages * parts)
        newest_X = cell_T.at[row_X].get(mode="fill", fill_value=0) % size
    else:
        at_X, newest_X = jnp.where(is_newest_T, at_T, pages * parts), cell_T % size

    cells = pool_PC2KH.reshape(pages * parts, size, 2, kv_heads, head_size)
    k_XEKH = from_cells(cells.at[at_X, :, 0].get(mode="clip"))
    is_held_XE = jnp.arange(size, dtype=jnp.int32)[None, :] <= newest_X[:, None]
    is_held_XE11 = is_held_XE[:, :, None, None]
    least_XKH = jnp.min(jnp.where(is_held_XE11, k_XEKH, jnp.inf), axis=1)
    largest_XKH = jnp.max(jnp.where(is_held_XE11, k_XEKH, -jnp.inf), axis=1)
    new = jnp.stack([least_XKH, largest_XKH], axis=1)
    bounds = bounds_PJ2KH.reshape(pages * parts, 2, kv_heads, head_size)
    return bounds.at[at_X].set(new, mode="drop").reshape(bounds_PJ2KH.shape)
