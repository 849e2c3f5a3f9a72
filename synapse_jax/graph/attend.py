"""How a layer of an entry attends: it writes its keys and values, then reads what its policy allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from synapse_jax.graph.entry import DECODE_ROLE, Entry, Rows
from synapse_jax.ir.nodes import Block, ModelIR, Node
from synapse_jax.kv.bounds import update_bounds
from synapse_jax.kv.kinds import Kind, cache_kinds, pooled
from synapse_jax.kv.pages import write_rows
from synapse_jax.ops import attention
from synapse_jax.ops.attention.pooling import pool_leaving
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.compressed import Compressed
from synapse_jax.spec.page_activation import PageActivation
from synapse_jax.spec.policy import AttentionPolicy

Cache = tuple[jax.Array, ...]

AttendNode = Callable[
    [Node, Cache, jax.Array, jax.Array, jax.Array, Rows, jax.Array | None], tuple[jax.Array, Cache]
]
"""(node, a layer's cache, q, k, v, rows, index of the layer) → (attended rows [T, N·H], its new cache).

A layer's cache is its arrays (`kv.pages.layer_arrays`). The index is there if the node `selects_pages`.
"""

AttendFunction = Callable[[Any, jax.Array, jax.Array, jax.Array, Rows, float, int], tuple[jax.Array, Any]]
"""The same of a layer whose mask is all there is to it: (pool, q, k, v, rows, scale, window) → (attended
rows, the new pool)."""


def entry_attention(ir: ModelIR, entry: Entry, attend: AttendFunction | None = None) -> AttendNode:
    """How each node of an entry attends, by its policy.

    Args:
        ir: the model.
        entry: the entry.
        attend: for layers whose mask is all there is to them; paged attention by default.
    """
    attend = attend or paged_attention(ir)

    def attend_node(node: Node, cache: Cache, q_TNH, k_TKH, v_TKH, rows: Rows, index):
        scale, policy = float(node.attribute("scale")), node_policy(node)
        if isinstance(policy, PageActivation):
            return page_activation(ir, entry, cache, q_TNH, k_TKH, v_TKH, rows, scale, policy, index)
        if isinstance(policy, Compressed):
            return compressed_attention(ir, entry, cache, q_TNH, k_TKH, v_TKH, rows, scale, policy)
        window = int(node.attribute("window"))
        out, pool = attend(cache[0], q_TNH, k_TKH, v_TKH, rows, scale, window)
        return out, (pool,)

    return attend_node


def node_policy(node: Node) -> AttentionPolicy:
    """The policy of an `attend` node: `Dense` where the layer's mask is all there is to it."""
    return parse_attention(str(node.attribute("policy")))


def selects_pages(block: Block) -> bool:
    """Whether a layer's block has a node that activates pages."""
    return any(node.op == "attend" and isinstance(node_policy(node), PageActivation) for node in block.nodes)


def paged_attention(ir: ModelIR) -> AttendFunction:
    """Attention over a layer's pool."""
    attend_pages = attention.IMPLEMENTATIONS[ir.profile.kernels]
    kinds = cache_kinds(ir.spec, ir.profile)

    def attend(pool, q_TNH, k_TKH, v_TKH, rows: Rows, scale: float, window: int):
        kind = kinds.index(Kind(window))
        pool = write_rows(pool, k_TKH, v_TKH, rows.page_YT[kind], rows.cell_T)
        places = (rows.page_table_YBM[kind], rows.sequence_T, rows.position_T)
        return attend_pages(q_TNH, pool, *places, scale, window), pool

    return attend


def page_activation(
    ir: ModelIR,
    entry: Entry,
    cache: Cache,
    q_TNH: jax.Array,
    k_TKH: jax.Array,
    v_TKH: jax.Array,
    rows: Rows,
    scale: float,
    policy: PageActivation,
    layer: jax.Array | None,
) -> tuple[jax.Array, Cache]:
    """Attention over the pages that a row selects, where its role is that of decoding.

    Where a step has many rows of a sequence they are prompt tokens and attend densely. In entries of one row
    a sequence the role decides. Tracing one that decodes several sequences at once raises ValueError.
    """
    assert layer is not None
    index = layer
    is_one_row = entry.rows == entry.sequences
    if is_one_row and entry.sequences > 1:
        raise ValueError(f"{entry}: page activation decodes one sequence at a time, not {entry.sequences}")
    kind = cache_kinds(ir.spec, ir.profile).index(Kind(0))
    pool, bounds = cache
    pool = write_rows(pool, k_TKH, v_TKH, rows.page_YT[kind], rows.cell_T)
    bounds = update_bounds(bounds, pool, rows.page_YT[kind], rows.cell_T, entry.sequences)
    table_BM = rows.page_table_YBM[kind]

    def densely():
        attend_pages = attention.IMPLEMENTATIONS[ir.profile.kernels]
        return attend_pages(q_TNH, pool, table_BM, rows.sequence_T, rows.position_T, scale)

    def selectively():
        attend_selected = attention.SELECTING[ir.profile.kernels]
        return attend_selected(q_TNH, pool, bounds, table_BM[0], rows.position_T[0], index, scale, policy)

    if not is_one_row:
        return densely(), (pool, bounds)
    return lax.cond(rows.role_T[0] == DECODE_ROLE, selectively, densely), (pool, bounds)


def compressed_attention(
    ir: ModelIR,
    entry: Entry,
    cache: Cache,
    q_TNH: jax.Array,
    k_TKH: jax.Array,
    v_TKH: jax.Array,
    rows: Rows,
    scale: float,
    policy: Compressed,
) -> tuple[jax.Array, Cache]:
    """Attention over the newest keys and the pooled blocks of those before. The roles of rows do not matter.

    Tracing an entry of several sequences raises ValueError.
    """
    if entry.sequences > 1:
        raise ValueError(f"{entry}: compressed attention evaluates one sequence, not {entry.sequences}")
    kinds = cache_kinds(ir.spec, ir.profile)
    newest = kinds.index(Kind(policy.window, policy.block))
    pool, blocks, block_sum = cache
    pool = write_rows(pool, k_TKH, v_TKH, rows.page_YT[newest], rows.cell_T)
    tables = (rows.page_table_YBM[newest, 0], rows.page_table_YBM[kinds.index(pooled(kinds[newest])), 0])
    assert rows.to_midpoint is not None
    blocks, block_sum = pool_leaving(
        pool, blocks, block_sum, *tables, rows.position_T, policy.window, rows.to_midpoint
    )
    attend = attention.COMPRESSED[ir.profile.kernels]
    out = attend(q_TNH, pool, blocks, *tables, rows.position_T, scale, policy.window, policy.block)
    return out, (pool, blocks, block_sum)
