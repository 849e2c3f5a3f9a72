"""Choosing a token from logits: filters without a sort, and noise that belongs to a position.

A sort of a vocabulary is slow on every backend. Each filter keeps the tokens above a threshold, and the
threshold is found by bisection over the bits of a float32: 32 counts or sums over V.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.ops.linear import row_sum

Array = Any
"""An array of the device or the host, or an abstract shape."""


class SamplerRows(NamedTuple):
    """The settings of B sequences; see `spec.sampling.Sampling` for what each one means."""

    seed_B2: Array
    """uint32 [B, 2], high and low half of the seed."""
    temperature_B: Array
    """float32 [B]; 0 takes the most likely token."""
    top_k_B: Array
    """int32 [B]; 0 keeps all."""
    top_p_B: Array
    """float32 [B]."""
    min_p_B: Array
    """float32 [B]."""
    penalty_B: Array
    """float32 [B]."""


def choose(logits_BV: jax.Array, seen_BV: jax.Array, position_B: jax.Array, rows: SamplerRows) -> jax.Array:
    """Chooses one token a row, int32 [B]; a row's choice depends on nothing in other rows.

    Args:
        logits_BV: float32 [B, V].
        seen_BV: bool [B, V], tokens that the penalty applies to.
        position_B: int32 [B], the position that the chosen token will have in its sequence.
        rows: the settings.
    """
    penalised_BV = penalise(logits_BV, seen_BV, rows.penalty_B)
    kept_BV = filter_logits(penalised_BV, rows.top_k_B, rows.top_p_B, rows.min_p_B)
    noise_BV = jax.vmap(lambda seed, position: gumbel_noise(seed, position, logits_BV.shape[-1]))(
        rows.seed_B2, position_B
    )
    is_random_B1 = (rows.temperature_B > 0)[:, None]
    scaled_BV = kept_BV / jnp.where(is_random_B1, rows.temperature_B[:, None], 1.0) + noise_BV
    return jnp.argmax(jnp.where(is_random_B1, scaled_BV, penalised_BV), axis=-1).astype(jnp.int32)


def penalise(logits_BV: jax.Array, seen_BV: jax.Array, penalty_B: jax.Array) -> jax.Array:
    """Logits with the repetition penalty, float32 [B, V]."""
    penalty_B1 = penalty_B[:, None]
    return jnp.where(
        seen_BV, jnp.where(logits_BV > 0, logits_BV / penalty_B1, logits_BV * penalty_B1), logits_BV
    )


def filter_logits(
    logits_BV: jax.Array, top_k_B: jax.Array, top_p_B: jax.Array, min_p_B: jax.Array
) -> jax.Array:
    """Logits of the tokens that top-k, top-p and min-p keep, −inf for the rest; float32 [B, V].

    Each filter sees what the one before kept. Tokens with equal logits are kept or dropped together, so
    top-k may keep more than k; the best token is always kept.
    """
    order_BV = _ordered(logits_BV)
    top_B1 = jnp.max(logits_BV, axis=-1, keepdims=True)
    weight_BV = jnp.exp(logits_BV - top_B1)

    k_B = jnp.where(top_k_B == 0, logits_BV.shape[-1], jnp.minimum(top_k_B, logits_BV.shape[-1]))
    least_B = _largest_that(lambda c_B: _count(order_BV >= c_B[:, None]) >= k_B, order_BV)

    def mass(c_B):
        return row_sum(jnp.where(order_BV >= jnp.maximum(c_B, least_B)[:, None], weight_BV, 0.0))

    enough_B = top_p_B * mass(least_B)
    nucleus_B = _largest_that(lambda c_B: mass(c_B) >= enough_B, order_BV)
    # At 1 nothing may go, not even what is too unlikely to change the sum.
    least_B = jnp.where(top_p_B < 1, jnp.maximum(least_B, nucleus_B), least_B)
    kept_BV = (order_BV >= least_B[:, None]) & (logits_BV - top_B1 >= jnp.log(min_p_B)[:, None])
    return jnp.where(kept_BV, logits_BV, -jnp.inf)


def gumbel_noise(seed_2: jax.Array, position: jax.Array, size: int) -> jax.Array:
    """Standard Gumbel noise, float32 [size]: argmax(logits + noise) is a draw from softmax(logits).

    The bits are those of the Threefry generator, keyed by seed and position: the same on every device, in
    any step, beside any neighbours.
    """
    key = jax.random.fold_in(jax.random.wrap_key_data(seed_2, impl="threefry2x32"), position)
    bits = jax.random.bits(key, (size,), jnp.uint32)
    # The middles of 2^23 equal steps: exact in float32, and neither 0 nor 1.
    uniform = ((bits >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)
    return -jnp.log(-jnp.log(uniform))


def _ordered(x: jax.Array) -> jax.Array:
    """uint32 that compare as the float32 of `x` do."""
    bits = lax.bitcast_convert_type(jnp.where(x == 0, 0.0, x), jnp.uint32)  # −0 equals 0
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))


def _count(mask_BV: jax.Array) -> jax.Array:
    return jnp.sum(mask_BV, axis=-1, dtype=jnp.int32)


def _largest_that(holds, order_BV: jax.Array) -> jax.Array:
    """The largest uint32 [B] for which `holds` is true; it is true up to some number and false above."""

    def set_bit(i, c_B):
        higher_B = c_B | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(holds(higher_B), higher_B, c_B)

    return lax.fori_loop(0, 32, set_bit, jnp.zeros(order_BV.shape[0], jnp.uint32))
