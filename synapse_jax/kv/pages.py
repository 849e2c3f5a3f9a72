"""The KV cache as a value: pools of pages, an array a layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile

DTYPES = {"f32": jnp.float32}


Pages = tuple[jax.Array, ...]
"""The whole cache: a pool [P, C, 2, K, H] a layer, rotated keys at index 0 of the third axis and values at 1.

A step takes it, donates it and returns it. A position's keys and values lie together, so that a step writes
them as one row.
"""


def abstract_pages(
    spec: ModelSpec, profile: RuntimeProfile, capacity: int
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Shapes and types of the pools.

    Args:
        spec: gives L, K and H.
        profile: gives C and the KV dtype.
        capacity: positions in the pool, a multiple of C.
    """
    pages, rest = divmod(capacity, profile.page_size)
    if rest:
        raise ValueError(f"capacity {capacity} is not a multiple of the page size {profile.page_size}")
    shape = (pages, profile.page_size, 2, spec.kv_heads, spec.head_size)
    return (jax.ShapeDtypeStruct(shape, DTYPES[profile.kv_dtype]),) * spec.layers


def write_rows(
    pool_PC2KH: jax.Array, k_TKH: jax.Array, v_TKH: jax.Array, page_T: jax.Array, cell_T: jax.Array
) -> jax.Array:
    """The pool with new rows at their cells.

    Args:
        pool_PC2KH: the pool of one layer.
        k_TKH: rotated keys [T, K, H].
        v_TKH: values [T, K, H].
        page_T: int32 [T], the page of each row; P drops the row, which is how padding is written nowhere.
        cell_T: int32 [T], the position within the page.

    Returns:
        The new pool. Cells that no row names keep their contents.
    """
    pages, page_size = pool_PC2KH.shape[:2]
    row_T = page_T * page_size + cell_T
    rows = pool_PC2KH.reshape(pages * page_size, -1)
    new = jnp.stack([k_TKH, v_TKH], axis=1).astype(pool_PC2KH.dtype).reshape(len(row_T), -1)
    return rows.at[row_T].set(new, mode="drop").reshape(pool_PC2KH.shape)


def read_page(pool_PC2KH: jax.Array, page: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One page: keys [K, C, H] and values [K, H, C], positions last so that P·V contracts last axes."""
    page_C2KH = lax.dynamic_index_in_dim(pool_PC2KH, page, keepdims=False, allow_negative_indices=False)
    return page_C2KH[:, 0].transpose(1, 0, 2), page_C2KH[:, 1].transpose(1, 2, 0)
