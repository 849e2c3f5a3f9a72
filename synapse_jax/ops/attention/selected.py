"""Attention of one token over the selection pages that it activates, in plain XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.kv.pages import from_cells
from synapse_jax.ops.attention.selection import bound_scores, random_scores, select_pages
from synapse_jax.ops.attention.xla import finished, grouped_queries, softmax_block, start_softmax
from synapse_jax.spec.page_activation import PageActivation


def attend_selected(
    q_1NH: jax.Array,
    pool_PC2KH: jax.Array,
    bounds_PJ2KH: jax.Array,
    page_table_M: jax.Array,
    position: jax.Array,
    layer: jax.Array,
    scale: float,
    policy: PageActivation,
) -> jax.Array:
    """Attention of one row to the pages that a policy has it read.

    The pages are packed, ascending, into key blocks of C positions and pass through the online softmax of
    `attend_pages`: if all are read, the blocks are the same and so are the bits.

    Args:
        q_1NH: float32 [1, N, H], rotated.
        pool_PC2KH: the layer's pool, the row's own key and value already written.
        bounds_PJ2KH: the bounds of its keys, up to date.
        page_table_M: int32 [M], pages of the sequence.
        position: int32, the row's own.
        layer: int32, index of the layer, which random selection depends on.
        scale: factor on q·k.
        policy: what is read.

    Returns:
        float32 [1, N·H].
    """
    parts, kv_heads, head_size = bounds_PJ2KH.shape[1], *bounds_PJ2KH.shape[3:]
    page_size, size = pool_PC2KH.shape[1], policy.page
    q_KGH = grouped_queries(q_1NH, kv_heads, scale)
    group = q_KGH.shape[1]
    page_WL, count = selected_pages(q_KGH, bounds_PJ2KH, page_table_M, position, layer, policy)
    heads, places = page_WL.shape
    if heads == kv_heads:
        q_WRH, head_W1 = q_KGH, jnp.arange(kv_heads, dtype=jnp.int32)[:, None]
    else:
        # A product of G equal rows, so that a row has the bits that it has beside its group.
        q_WRH = jnp.repeat(q_KGH.reshape(heads, 1, head_size), group, axis=1)
        head_W1 = (jnp.arange(heads, dtype=jnp.int32) // group)[:, None]
    page_WL = jnp.pad(page_WL, ((0, 0), (0, -places % parts)))

    def turn(block, state):
        place_J = block * parts + jnp.arange(parts, dtype=jnp.int32)
        # Places beyond the count may name no page; they are masked, and their cells are read from page 0.
        page_WJ = lax.dynamic_slice_in_dim(page_WL, block * parts, parts, axis=1)
        page_WJ = jnp.where(place_J[None, :] < count, page_WJ, 0)
        at_WJ3 = jnp.stack(
            [
                page_table_M[page_WJ // parts],
                page_WJ % parts * size,
                jnp.broadcast_to(head_W1, page_WJ.shape),
            ],
            axis=-1,
        )
        cells_WJE2H = from_cells(_read_cells(pool_PC2KH, at_WJ3, size))
        k_WCH = cells_WJE2H[:, :, :, 0].reshape(heads, page_size, head_size)
        v_WHC = cells_WJE2H[:, :, :, 1].reshape(heads, page_size, head_size).transpose(0, 2, 1)
        key_WJE = page_WJ[:, :, None] * size + jnp.arange(size, dtype=jnp.int32)[None, None, :]
        is_read_WJE = (key_WJE <= position) & (place_J < count)[None, :, None]
        return softmax_block(state, q_WRH, k_WCH, v_WHC, is_read_WJE.reshape(heads, 1, page_size))

    blocks = (count + parts - 1) // parts
    state = lax.fori_loop(0, blocks, turn, start_softmax(heads, group, head_size))
    out_WRH = finished(state)
    return (out_WRH if heads == kv_heads else out_WRH[:, :1]).reshape(1, -1)


def _read_cells(pool_PC2KH: jax.Array, at_WJ3: jax.Array, size: int) -> jax.Array:
    """Cells [W, J, E, 2, H] of selection pages, each from (page, first cell, KV head).

    A gather from the pool as it is: seen in another shape it would be copied (`kv.bounds`).
    """
    head_size = pool_PC2KH.shape[-1]
    return lax.gather(
        pool_PC2KH,
        at_WJ3,
        lax.GatherDimensionNumbers(
            offset_dims=(2, 3, 4), collapsed_slice_dims=(0, 3), start_index_map=(0, 1, 3)
        ),
        slice_sizes=(1, size, 2, 1, head_size),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def selected_pages(
    q_KGH: jax.Array,
    bounds_PJ2KH: jax.Array,
    page_table_M: jax.Array,
    position: jax.Array,
    layer: jax.Array,
    policy: PageActivation,
) -> tuple[jax.Array, jax.Array]:
    """What `select_pages` returns for one token: W is K, or N = K·G where each query head selects."""
    kv_heads, group, _ = q_KGH.shape
    heads = kv_heads if policy.heads == "kv" else kv_heads * group
    pages = page_table_M.shape[0] * bounds_PJ2KH.shape[1]
    if policy.select == "random":
        score_WU = random_scores(policy.seed, layer, position, heads, pages)
    else:
        bounds_U2KH = bounds_PJ2KH[page_table_M].reshape(pages, *bounds_PJ2KH.shape[2:])
        score_KGU = bound_scores(q_KGH, bounds_U2KH)
        score_WU = score_KGU.max(1) if policy.heads == "kv" else score_KGU.reshape(heads, pages)
    return select_pages(score_WU, position, policy)
