"""How a layer of an entry attends: it writes its keys and values, then reads what its policy allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from synapse_jax.graph.entry import DECODE_ROLE, Entry, Rows
from synapse_jax.ir.nodes import ModelIR, Node
from synapse_jax.kv.bounds import update_bounds
from synapse_jax.kv.pages import write_rows
from synapse_jax.ops import attention
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.page_activation import PageActivation

AttendFunction = Callable[[Any, jax.Array, jax.Array, jax.Array, Rows, float, int], tuple[jax.Array, Any]]
"""(a layer's cache, q, k, v, rows, scale, window) → (attended rows [T, N·H], the layer's new cache)."""

SelectFunction = Callable[
    [Any, jax.Array, jax.Array, jax.Array, Rows, float, PageActivation, jax.Array], tuple[jax.Array, Any]
]
"""The same of a layer that selects pages: its cache is (pool, bounds), and in place of the window there are
the policy and the index of the layer."""


def node_policy(node: Node) -> PageActivation | None:
    """The policy of an `attend` node; None where it reads all that the layer's own mask allows."""
    policy = parse_attention(str(node.attribute("policy")))
    return policy if isinstance(policy, PageActivation) else None


def paged_attention(ir: ModelIR) -> AttendFunction:
    """Attention over a layer's pool."""
    attend_pages = attention.IMPLEMENTATIONS[ir.profile.kernels]

    def attend(pool, q_TNH, k_TKH, v_TKH, rows: Rows, scale: float, window: int):
        kind = ir.spec.windows.index(window)
        pool = write_rows(pool, k_TKH, v_TKH, rows.page_YT[kind], rows.cell_T)
        places = (rows.page_table_YBM[kind], rows.sequence_T, rows.position_T)
        return attend_pages(q_TNH, pool, *places, scale, window), pool

    return attend


def page_activation(ir: ModelIR, entry: Entry) -> SelectFunction:
    """Attention over the pages that a row selects, where its role is that of decoding.

    Where a step has many rows of a sequence they are prompt tokens and attend densely. In entries of one row
    a sequence the role decides. Tracing one that decodes several sequences at once raises ValueError.
    """
    is_one_row = entry.rows == entry.sequences
    attend_pages = attention.IMPLEMENTATIONS[ir.profile.kernels]
    attend_selected = attention.SELECTING[ir.profile.kernels]

    def attend(cache, q_TNH, k_TKH, v_TKH, rows: Rows, scale: float, policy: PageActivation, layer):
        if is_one_row and entry.sequences > 1:
            raise ValueError(
                f"{entry}: page activation decodes one sequence at a time, not {entry.sequences}"
            )
        kind = ir.spec.windows.index(0)
        pool, bounds = cache
        pool = write_rows(pool, k_TKH, v_TKH, rows.page_YT[kind], rows.cell_T)
        bounds = update_bounds(bounds, pool, rows.page_YT[kind], rows.cell_T, entry.sequences)
        table_BM = rows.page_table_YBM[kind]

        def densely():
            return attend_pages(q_TNH, pool, table_BM, rows.sequence_T, rows.position_T, scale)

        def selectively():
            return attend_selected(q_TNH, pool, bounds, table_BM[0], rows.position_T[0], layer, scale, policy)

        if not is_one_row:
            return densely(), (pool, bounds)
        out = lax.cond(rows.role_T[0] == DECODE_ROLE, selectively, densely)
        return out, (pool, bounds)

    return attend
