"""The KV cache as a value: pools of pages, an array a layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.kv.kinds import Kind, cache_kinds, layer_kind, pooled
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.page_activation import PageActivation
from synapse_jax.spec.runtime import RuntimeProfile

DTYPES = {"f32": jnp.float32, "bf16": jnp.uint16, "f16": jnp.float16}
"""What cells are stored as. bf16 as its bits: on a CPU, XLA writes bfloat16 rows by way of a float32 copy of
the whole pool."""

Pages = tuple[jax.Array, ...]
"""The whole cache: a pool [P, C, 2, K, H] a layer, rotated keys at index 0 of the third axis and values at 1.
After all pools comes, layer by layer, what is kept beside them: of a layer that selects pages their bounds
[P, J, 2, K, H] (`kv.bounds`); of one that compresses the pool of its blocks and the sum [2, K, H] of the
block that is filling (`ops.attention.pooling`).

Where layers are a loop (`RuntimeProfile.layers`) there is one array of each sort, [L, …] of all layers.

P depends on the layer's kind. A step takes the cache, donates it and returns it. A position's keys and values
lie together, so that a step writes them as one row.
"""

Shapes = tuple[jax.ShapeDtypeStruct, ...]


def abstract_pages(spec: ModelSpec, profile: RuntimeProfile, capacity: int) -> Shapes:
    """Shapes and types of the arrays of a cache, in the order of `Pages`.

    Args:
        spec: gives L, K and H.
        profile: gives C, the KV dtype and, by its attention policy, what is kept beside the pools.
        capacity: positions in the pools of layers that see all keys, a multiple of C.
    """
    if profile.layers == "scan":
        own = _layer_shapes(spec, profile, 0, capacity)
        return tuple(jax.ShapeDtypeStruct((spec.layers, *array.shape), array.dtype) for array in own)
    layers = [_layer_shapes(spec, profile, layer, capacity) for layer in range(spec.layers)]
    beside = [array for _, *arrays in layers for array in arrays]
    return (*(pool for pool, *_ in layers), *beside)


def layer_arrays(spec: ModelSpec, profile: RuntimeProfile) -> tuple[tuple[int, ...], ...]:
    """Where in `Pages` the arrays of each layer are: its pool, and what is kept beside it."""
    if profile.layers == "scan":
        return (tuple(range(len(_layer_shapes(spec, profile, 0, profile.page_size)))),) * spec.layers
    places, end = [], spec.layers
    for layer in range(spec.layers):
        beside = len(_layer_shapes(spec, profile, layer, profile.page_size)) - 1
        places.append((layer, *range(end, end + beside)))
        end += beside
    return tuple(places)


def page_kinds(spec: ModelSpec, profile: RuntimeProfile) -> tuple[int | None, ...]:
    """The kind of layer, by its index, whose page table each array follows; None where it follows none."""
    kinds = cache_kinds(spec, profile)
    layers = 1 if profile.layers == "scan" else spec.layers
    own = [layer_kind(spec, profile, layer) for layer in range(layers)]
    found: list[int | None] = [kinds.index(kind) for kind in own]
    for layer, kind in enumerate(own):
        if kind.block:
            found += [kinds.index(pooled(kind)), None]
        elif len(_layer_shapes(spec, profile, layer, profile.page_size)) > 1:
            found.append(kinds.index(kind))
    return tuple(found)


def _layer_shapes(spec: ModelSpec, profile: RuntimeProfile, layer: int, capacity: int) -> Shapes:
    """A layer's pool and what is kept beside it."""
    heads, kind = (2, spec.kv_heads, spec.head_size), layer_kind(spec, profile, layer)

    def pool(kind: Kind) -> jax.ShapeDtypeStruct:
        pages = kind.pages(capacity, profile.page_size)
        return jax.ShapeDtypeStruct((pages, profile.page_size, *heads), DTYPES[profile.kv_dtype])

    if kind.block:
        return pool(kind), pool(pooled(kind)), jax.ShapeDtypeStruct(heads, jnp.float32)
    policy, own = profile.policy, pool(kind)
    if not isinstance(policy, PageActivation) or not policy.applies_to(spec, layer):
        return (own,)
    bounds = (own.shape[0], profile.page_size // policy.page, *heads)
    return own, jax.ShapeDtypeStruct(bounds, jnp.float32)


def grown(pool: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The pool, or its bounds, in a larger shape with more pages. These are zeroed: masked cells are
    multiplied by zero, and zero times an old NaN would be NaN."""
    added = [(0, new - old, 0) for old, new in zip(pool.shape, shape, strict=True)]
    return lax.pad(pool, jnp.zeros((), pool.dtype), added)


def copy_pages(pool_PC2KH: jax.Array, source_X: jax.Array, target_X: jax.Array) -> jax.Array:
    """The pool with some pages copied over others.

    Args:
        pool_PC2KH: the pool of one layer, or its bounds; or of all layers, [L, P, …].
        source_X: int32 [X], pages to copy.
        target_X: int32 [X], distinct pages to write; P writes nothing.
    """
    if pool_PC2KH.ndim == 6:
        return pool_PC2KH.at[:, target_X].set(pool_PC2KH[:, source_X], mode="drop")
    return pool_PC2KH.at[target_X].set(pool_PC2KH[source_X], mode="drop")


def to_cells(x: jax.Array, stored: jnp.dtype) -> jax.Array:
    """Keys or values, float32, as they are stored."""
    return (
        lax.bitcast_convert_type(x.astype(jnp.bfloat16), stored) if stored == jnp.uint16 else x.astype(stored)
    )


def from_cells(x: jax.Array) -> jax.Array:
    """Stored keys or values in float32."""
    is_bf16 = x.dtype == jnp.uint16
    return (lax.bitcast_convert_type(x, jnp.bfloat16) if is_bf16 else x).astype(jnp.float32)


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
    if pool_PC2KH.shape[3] == 1:
        # XLA's CPU backend gives the pool another layout where it comes out of rows with an axis of one head:
        # every step would copy it. With several heads, rows compile faster.
        new_T2KH = to_cells(jnp.stack([k_TKH, v_TKH], axis=1), pool_PC2KH.dtype)
        return pool_PC2KH.at[page_T, cell_T].set(new_T2KH, mode="drop")
    pages, page_size = pool_PC2KH.shape[:2]
    row_T = page_T * page_size + cell_T
    rows = pool_PC2KH.reshape(pages * page_size, -1)
    new = to_cells(jnp.stack([k_TKH, v_TKH], axis=1), pool_PC2KH.dtype).reshape(len(row_T), -1)
    return rows.at[row_T].set(new, mode="drop").reshape(pool_PC2KH.shape)


def read_page(pool_PC2KH: jax.Array, page: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One page in float32, whatever it is stored in: keys [K, C, H] and values [K, H, C], positions last so
    that P·V contracts last axes."""
    page_C2KH = lax.dynamic_index_in_dim(pool_PC2KH, page, keepdims=False, allow_negative_indices=False)
    page_C2KH = from_cells(page_C2KH)
    return page_C2KH[:, 0].transpose(1, 0, 2), page_C2KH[:, 1].transpose(1, 2, 0)
