"""Attention of whole sequences, every row at once: what the policies mean, in the plainest form.

Nothing is cached, so it can be differentiated. It is what attention over pages is tested against.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from synapse_jax.ops.attention.xla import batched_dot, grouped_queries, visible
from synapse_jax.ops.elementwise import rotate


class Turns(NamedTuple):
    """Angles that turn the rotated keys of a block to its midpoint (`spec.rope_table.turn_rows`)."""

    cos_ER: Any
    """float32 [b, R]."""
    sin_ER: Any
    """float32 [b, R]."""


def attend_sequence(
    q_SNH: jax.Array,
    k_SKH: jax.Array,
    v_SKH: jax.Array,
    scale: float,
    window: int = 0,
    turns: Turns | None = None,
) -> jax.Array:
    """Causal attention of all S positions of one sequence.

    Args:
        q_SNH: float32 queries, rotated.
        k_SKH: float32 keys, rotated.
        v_SKH: float32 values.
        scale: factor on q·k.
        window: a row sees its own key and the window − 1 before it; 0 means all keys 0 … position.
        turns: of b keys a block: rows then see the pooled blocks that left the window too, in the same
            softmax (`spec.compressed.Compressed`).

    Returns:
        float32 [S, N·H].
    """
    length, kv_heads = k_SKH.shape[:2]
    q_KRH = grouped_queries(q_SNH, kv_heads, scale)
    group = q_SNH.shape[1] // kv_heads
    position_S = jnp.arange(length, dtype=jnp.int32)
    visible_SC = visible(position_S, position_S, window)
    if turns is not None:
        k_SKH, v_SKH, seen_SX = _with_blocks(k_SKH, v_SKH, window, turns)
        visible_SC = jnp.concatenate([seen_SX, visible_SC], axis=1)
    scores_KRC = batched_dot(q_KRH, k_SKH.transpose(1, 0, 2))
    scores_KRC = jnp.where(jnp.tile(visible_SC, (group, 1))[None], scores_KRC, -jnp.inf)
    out_KRH = batched_dot(jax.nn.softmax(scores_KRC, axis=-1), v_SKH.transpose(1, 2, 0))
    return out_KRH.reshape(kv_heads, group, length, -1).transpose(2, 0, 1, 3).reshape(length, -1)


def _with_blocks(k_SKH: jax.Array, v_SKH: jax.Array, window: int, turns: Turns):
    """Keys and values with the pooled blocks before them, and which of the X blocks each row sees [S, X]."""
    block = turns.cos_ER.shape[0]
    length, heads, size = k_SKH.shape
    blocks = length // block
    whole = blocks * block
    turned_SKH = rotate(
        k_SKH[:whole], jnp.tile(turns.cos_ER, (blocks, 1)), jnp.tile(turns.sin_ER, (blocks, 1))
    )
    pooled = [x.reshape(blocks, block, heads, size).mean(1) for x in (turned_SKH, v_SKH[:whole])]
    left_S = jnp.arange(length, dtype=jnp.int32) - window + 1
    seen_SX = (jnp.arange(blocks, dtype=jnp.int32)[None, :] + 1) * block <= left_S[:, None]
    return jnp.concatenate([pooled[0], k_SKH]), jnp.concatenate([pooled[1], v_SKH]), seen_SX
