"""Whole sequences at once, without a cache: the form of a model that can be differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synapse_jax.graph.attend import node_policy
from synapse_jax.graph.entry import PROMPT_ROLE, Rows
from synapse_jax.graph.lower import Model, Params
from synapse_jax.ir.nodes import ModelIR, Node
from synapse_jax.kv.pages import layer_arrays
from synapse_jax.ops.attention.sequences import Turns, attend_sequence
from synapse_jax.ops.logprob import nll_of
from synapse_jax.spec.compressed import Compressed
from synapse_jax.spec.rope_table import turn_rows

Array = Any


class Angles(NamedTuple):
    """What rotates the keys of sequences of S positions; the same for all sequences and steps."""

    cos_ZSR: Array
    """float32 [Z, S, R], rows of each RoPE table."""
    sin_ZSR: Array
    """float32 [Z, S, R]."""
    turns: Turns | None
    """Turns keys to the midpoint of their block; None where no layer compresses."""


def angles(ir: ModelIR, length: int) -> Angles:
    """The angles of sequences of `length` positions, on the host."""
    policy = ir.profile.policy
    turns = Turns(*turn_rows(ir.rope_tables[0], policy.block)) if isinstance(policy, Compressed) else None
    return Angles(*ir.angle_rows(np.arange(length)), turns)


def sequence_function(
    ir: ModelIR, attend: Callable[..., jax.Array] = attend_sequence
) -> Callable[[Params, Array, Angles], jax.Array]:
    """The function (params, tokens int32 [B, S], angles) → logits float32 [B, S, V] of all rows.

    Its layers are those of `entry_function`; only attention is another form of the same policy
    (`ops.attention.sequences`). It keeps the scores of all rows.

    Args:
        ir: the model.
        attend: another form of `attend_sequence`, for those who look on.

    Raises:
        ValueError: the policy is one of decoded tokens: whole sequences have none.
    """
    residual_of = residual_function(ir, attend)

    def call(params: Params, token_BS: Array, angles: Angles) -> jax.Array:
        return jax.vmap(head_function(ir, params))(residual_of(params, token_BS, angles))

    return call


def residual_function(
    ir: ModelIR, attend: Callable[..., jax.Array] = attend_sequence
) -> Callable[[Params, Array, Angles], jax.Array]:
    """As `sequence_function` before the head: the residual stream float32 [B, S, D] after the last layer."""
    if ir.profile.policy.is_decode_only:
        raise ValueError(f"attention {ir.profile.attention} reads less only in decoding")

    def call(params: Params, token_BS: Array, angles: Angles) -> jax.Array:
        model = Model(ir, params, _attention(attend, angles.turns))
        return jax.vmap(lambda token_S: _residual(model, token_S, angles))(token_BS)

    return call


def head_function(ir: ModelIR, params: Params) -> Callable[[jax.Array], jax.Array]:
    """The function from rows of the residual stream float32 [R, D] to logits float32 [R, V].

    Args:
        ir: the model.
        params: the weights of its head, and any others.
    """
    return Model(ir, params, _attention(attend_sequence, None)).head


def loss_function(ir: ModelIR) -> Callable[[Params, Array, Array, Angles], jax.Array]:
    """The function (params, tokens int32 [B, S], targets int32 [B, S], angles) → NLL float32 [B, S]."""
    logits_of = sequence_function(ir)

    def call(params: Params, token_BS: Array, target_BS: Array, angles: Angles) -> jax.Array:
        logits_BSV = logits_of(params, token_BS, angles)
        nll_R = nll_of(logits_BSV.reshape(-1, logits_BSV.shape[-1]), target_BS.reshape(-1))
        return nll_R.reshape(target_BS.shape)

    return call


def _residual(model: Model, token_S: jax.Array, angles: Angles) -> jax.Array:
    length = token_S.shape[0]
    nothing_S = jnp.zeros(length, jnp.int32)
    rows = Rows(
        token_T=token_S,
        sequence_T=nothing_S,
        position_T=jnp.arange(length, dtype=jnp.int32),
        role_T=jnp.full(length, PROMPT_ROLE, jnp.int32),
        cos_ZTR=angles.cos_ZSR,
        sin_ZTR=angles.sin_ZSR,
        page_YT=None,
        cell_T=None,
        page_table_YBM=None,
        to_midpoint=angles.turns,
    )
    places = layer_arrays(model.ir.spec, model.ir.profile)
    x_SD, _ = model.evaluate([()] * (1 + max(max(layer) for layer in places)), rows)
    return x_SD


def _attention(attend: Callable[..., jax.Array], turns: Turns | None):
    def attend_node(node: Node, cache, q_SNH, k_SKH, v_SKH, rows: Rows, index):
        is_compressed = isinstance(node_policy(node), Compressed)
        scale, window = float(node.attribute("scale")), int(node.attribute("window"))
        return attend(q_SNH, k_SKH, v_SKH, scale, window, turns if is_compressed else None), cache

    return attend_node
