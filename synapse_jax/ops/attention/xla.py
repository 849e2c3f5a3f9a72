"""Paged attention in plain XLA: an online softmax that takes one page a turn, in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.kv.pages import read_page


def attend_pages(
    q_TNH: jax.Array,
    pool_PC2KH: jax.Array,
    page_table_BM: jax.Array,
    sequence_T: jax.Array,
    position_T: jax.Array,
    scale: float,
    window: int = 0,
) -> jax.Array:
    """Causal attention of packed rows over the pages of their sequences, through a sliding window or not.

    Online softmax (Milakov and Gimelshein, arXiv 1805.02867) over key blocks of one page. The row sum is
    the last row of the P·V product, through a row of ones under V, so that it is accumulated like every
    other output. A block in which a row sees no key leaves that row's state unchanged to the bit: rows of
    other sequences, padding and capacity beyond the used pages cost time and never a bit.

    Args:
        q_TNH: float32 [T, N, H], rotated.
        pool_PC2KH: the layer's pool, of any float type, this step's rows already written.
        page_table_BM: int32 [B, M], page of each sequence's positions m·C … m·C + C − 1. Of several
            sequences, leading pages that all of them have are read once; rows of the table that no sequence
            uses repeat one that is used.
        sequence_T: int32 [T], the sequence of each row; −1 marks padding.
        position_T: int32 [T], the row's own position.
        scale: factor on q·k.
        window: a row sees its own key and the window − 1 before it; 0 means all keys 0 … position. Pages
            that no row of the step can reach are not read.

    Returns:
        float32 [T, N·H]; zeros in padding rows.
    """
    rows, query_heads, head_size = q_TNH.shape
    page_size, kv_heads = pool_PC2KH.shape[1], pool_PC2KH.shape[3]
    group = query_heads // kv_heads
    q_KRH = grouped_queries(q_TNH, kv_heads, scale)
    sequence_R, position_R = jnp.tile(sequence_T, group), jnp.tile(position_T, group)

    def visit(state, table_M, first, end, sequence):
        """Pages `first` … `end` − 1 of a table; rows of `sequence`, or of any (None), see them."""
        seen_R = sequence_R >= 0 if sequence is None else sequence_R == sequence
        newest_R = jnp.where(seen_R, position_R, -1)
        return visit_pages(state, q_KRH, pool_PC2KH, table_M, first, end, newest_R, window)

    state = start_softmax(kv_heads, group * rows, head_size)
    first_B, end_B = _page_ranges(sequence_T, position_T, page_table_BM.shape[0], page_size, window)
    if page_table_BM.shape[0] == 1:
        state = visit(state, page_table_BM[0], first_B[0], end_B[0], 0)
    else:
        same_M = jnp.all(page_table_BM == page_table_BM[:1], axis=0)
        shared = jnp.minimum(jnp.sum(jnp.cumprod(same_M.astype(jnp.int32))), jnp.max(end_B))
        first = jnp.min(jnp.where(end_B > 0, first_B, shared))
        state = visit(state, page_table_BM[0], first, shared, None)

        def visit_own(b, state):
            return visit(state, page_table_BM[b], jnp.maximum(first_B[b], shared), end_B[b], b)

        state = lax.fori_loop(0, page_table_BM.shape[0], visit_own, state)

    return ungrouped_rows(finished(state), rows)


def _page_ranges(sequence_T, position_T, sequences: int, page_size: int, window: int):
    """int32 [B] twice: the first page that a row of each sequence can see, and one past the last."""
    of_BT = sequence_T[None, :] == jnp.arange(sequences, dtype=jnp.int32)[:, None]
    newest_B = jnp.max(jnp.where(of_BT, position_T[None, :], -1), axis=1)
    end_B = (newest_B + page_size) // page_size
    if not window:
        return jnp.zeros_like(end_B), end_B
    oldest_B = jnp.min(jnp.where(of_BT, position_T[None, :], jnp.iinfo(jnp.int32).max), axis=1)
    return jnp.minimum(jnp.maximum(oldest_B - window + 1, 0) // page_size, end_B), end_B


def visit_pages(state, q_KRH, pool_PC2KH, page_table_M, first, end, newest_R, window: int):
    """Adds pages of a table to the online softmax, one a turn.

    Args:
        state: see `softmax_block`.
        q_KRH: scaled queries [K, R, H], R = G·T.
        pool_PC2KH: the pool.
        page_table_M: int32 [M].
        first: index of the first page to visit.
        end: one past the last.
        newest_R: int32 [R], the newest cell of the table that each row sees; −1 sees nothing.
        window: see `visible`.

    Returns:
        The new state.
    """
    page_size = pool_PC2KH.shape[1]

    def turn(m, state):
        page = lax.dynamic_index_in_dim(page_table_M, m, keepdims=False, allow_negative_indices=False)
        k_KCH, v_KHC = read_page(pool_PC2KH, page)
        key_C = m * page_size + jnp.arange(page_size, dtype=jnp.int32)
        return softmax_block(state, q_KRH, k_KCH, v_KHC, visible(key_C, newest_R, window))

    return lax.fori_loop(first, end, turn, state)


def visible(key_C: jax.Array, newest_R: jax.Array, window: int) -> jax.Array:
    """Which keys each row sees, bool [R, C]: those up to its own position and within the window.

    Args:
        key_C: int32 [C], positions of keys.
        newest_R: int32 [R], position of each row; −1 sees nothing.
        window: see `attend_pages`.
    """
    seen_RC = key_C[None, :] <= newest_R[:, None]
    return seen_RC & (newest_R[:, None] - key_C[None, :] < window) if window else seen_RC


def grouped_queries(q_TNH: jax.Array, kv_heads: int, scale: float) -> jax.Array:
    """Scaled queries by KV head, [K, R, H] with R = G·T: the rows of the group's first head come first."""
    rows, query_heads, head_size = q_TNH.shape
    q = (q_TNH * scale).reshape(rows, kv_heads, query_heads // kv_heads, head_size)
    return q.transpose(1, 2, 0, 3).reshape(kv_heads, -1, head_size)


def ungrouped_rows(out_KRH: jax.Array, rows: int) -> jax.Array:
    """The rows [T, N·H] of all query heads, from those of `grouped_queries`.

    Args:
        out_KRH: attended rows by KV head, R = G·T.
        rows: T.
    """
    kv_heads, _, head_size = out_KRH.shape
    out_TKGH = out_KRH.reshape(kv_heads, -1, rows, head_size).transpose(2, 0, 1, 3)
    return out_TKGH.reshape(rows, -1)


def start_softmax(heads: int, rows: int, head_size: int) -> tuple[jax.Array, jax.Array]:
    """The state of the online softmax before the first key (`softmax_block`)."""
    return (
        jnp.full((heads, rows), -jnp.inf, jnp.float32),
        jnp.zeros((heads, rows, head_size + 1), jnp.float32),
    )


def finished(state: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The attended rows [K, R, H] of a state; zeros where a row has seen no key."""
    _, sums_KRH1 = state
    # A row that sees a key has a sum of at least exp(0) = 1, so only padding is changed, from 0 to 1.
    return sums_KRH1[..., :-1] / jnp.maximum(sums_KRH1[..., -1:], 1)


def softmax_block(state, q_KRH, k_KCH, v_KHC, visible_RC):
    """Adds one block of keys to the online softmax.

    Args:
        state: (m_KR, sums_KRH1): the largest score so far, −inf before the first key, and the sums
            exp(s − m)·[v, 1].
        q_KRH: scaled queries [K, R, H], R = G·T.
        k_KCH: keys [K, C, H].
        v_KHC: values [K, H, C].
        visible_RC: bool [R, C], the keys that each row sees; or [K, 1, C], where heads see different ones.

    Returns:
        The new state. Rows that see no key of the block keep theirs bitwise.
    """
    m_KR, sums_KRH1 = state
    s_KRC = batched_dot(q_KRH, k_KCH)
    s_KRC = jnp.where(visible_RC if visible_RC.ndim == 3 else visible_RC[None], s_KRC, -jnp.inf)
    new_m_KR = jnp.maximum(m_KR, jnp.max(s_KRC, axis=-1))
    shift_KR = jnp.where(jnp.isneginf(new_m_KR), 0, new_m_KR)
    p_KRC = jnp.exp(s_KRC - shift_KR[..., None])
    decay_KR = jnp.exp(m_KR - shift_KR)
    ones_K1C = jnp.ones((v_KHC.shape[0], 1, v_KHC.shape[2]), v_KHC.dtype)
    v1_KH1C = jnp.concatenate([v_KHC, ones_K1C], axis=1)
    return new_m_KR, sums_KRH1 * decay_KR[..., None] + batched_dot(p_KRC, v1_KH1C)


def batched_dot(a_KRI: jax.Array, b_KOI: jax.Array) -> jax.Array:
    """[K, R, in]·[K, out, in]ᵀ → float32 [K, R, out]; the last axes contract, as in `linear`."""
    return lax.dot_general(
        a_KRI,
        b_KOI,
        (((2,), (2,)), ((0,), (0,))),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
