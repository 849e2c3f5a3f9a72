"""Choosing a token from logits: filters without a sort, and noise that belongs to a position.

XLA's sort of a whole vocabulary takes longer than a small model's step. Each filter keeps the tokens above a
threshold, which is found among the best 1,024 logits or, where that is not enough, by bisection over the
bits of a float32.
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
    best_BI, token_BI = _best(penalised_BV)
    least_B = threshold(penalised_BV, best_BI, rows.top_k_B, rows.top_p_B, rows.min_p_B)
    is_random_B = rows.temperature_B > 0
    temperature_B1 = jnp.where(is_random_B, rows.temperature_B, 1.0)[:, None]

    def draw(logits_BI, token_BI):
        noise_BI = jax.vmap(gumbel_noise)(rows.seed_B2, position_B, token_BI)
        kept_BI = logits_BI >= least_B[:, None]
        place_B1 = jnp.argmax(
            jnp.where(kept_BI, logits_BI / temperature_B1 + noise_BI, -jnp.inf), axis=-1, keepdims=True
        )
        return jnp.take_along_axis(token_BI, place_B1, axis=-1)[:, 0]

    def draw_from_all():
        token_V = jnp.arange(logits_BV.shape[-1], dtype=jnp.int32)
        return draw(penalised_BV, jnp.broadcast_to(token_V, logits_BV.shape))

    # A token's noise is the same in both, so only the time differs.
    are_among_best = jnp.all((least_B > best_BI[:, -1]) | ~is_random_B)
    drawn_B = lax.cond(are_among_best, lambda: draw(best_BI, token_BI), draw_from_all)
    return jnp.where(is_random_B, drawn_B, jnp.argmax(penalised_BV, axis=-1).astype(jnp.int32))


def penalise(logits_BV: jax.Array, seen_BV: jax.Array, penalty_B: jax.Array) -> jax.Array:
    """Logits with the repetition penalty, float32 [B, V]."""
    penalty_B1 = penalty_B[:, None]
    return jnp.where(
        seen_BV, jnp.where(logits_BV > 0, logits_BV / penalty_B1, logits_BV * penalty_B1), logits_BV
    )


BEST = 1024
"""I: logits of a row that are sorted."""


def threshold(
    logits_BV: jax.Array, best_BI: jax.Array, top_k_B: jax.Array, top_p_B: jax.Array, min_p_B: jax.Array
) -> jax.Array:
    """The least logit that top-k, top-p and min-p keep, float32 [B].

    Each filter sees what the one before kept. Tokens with equal logits are kept or dropped together, so
    top-k may keep more than k; the best token is always kept.

    Args:
        logits_BV: float32 [B, V].
        best_BI: the largest of them in descending order.
        top_k_B: see `SamplerRows`, like the rest.
        top_p_B: float32 [B].
        min_p_B: float32 [B].
    """
    least_B, is_open_B = _threshold_among_best(logits_BV, best_BI, top_k_B, top_p_B)
    searched_B = lax.cond(
        jnp.any(is_open_B), _threshold_by_bisection, lambda *_: least_B, logits_BV, top_k_B, top_p_B
    )
    # Row by row: a neighbour that needs the search must not move a threshold by a rounding.
    least_B = jnp.where(is_open_B, searched_B, least_B)
    return jnp.maximum(least_B, jnp.minimum(best_BI[:, 0] + jnp.log(min_p_B), best_BI[:, 0]))


def _best(logits_BV: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest logits in descending order and their tokens, [B, I]."""
    values_BI, token_BI = lax.top_k(logits_BV, min(BEST, logits_BV.shape[-1]))
    # Without the barrier slices of the result turn top_k into a sort of everything, 30 times slower.
    return lax.optimization_barrier((values_BI, token_BI.astype(jnp.int32)))


def _threshold_among_best(
    logits_BV: jax.Array, best_BI: jax.Array, top_k_B: jax.Array, top_p_B: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The threshold of top-k and top-p if it is among the best logits, and whether it is not, bool [B].

    It is not if k is larger, equal logits go on past them, or they have too little of the probability.
    """
    vocabulary, size = logits_BV.shape[-1], best_BI.shape[-1]
    keeps_all_B = (top_k_B == 0) | (top_k_B >= vocabulary)
    last_B1 = jnp.clip(top_k_B, 1, size)[:, None] - 1
    kth_B = jnp.take_along_axis(best_BI, last_B1, axis=-1)[:, 0]
    is_cut_short_B = ~keeps_all_B & ((top_k_B > size) | ((kth_B == best_BI[:, -1]) & (size < vocabulary)))
    least_B = jnp.where(keeps_all_B, -jnp.inf, kth_B)

    weight_BI = jnp.where(best_BI >= least_B[:, None], jnp.exp(best_BI - best_BI[:, :1]), 0.0)
    # Elementwise additions: a row's sums do not depend on how many rows there are.
    mass_BI = lax.associative_scan(jnp.add, weight_BI, axis=-1)
    total_B = row_sum(jnp.exp(logits_BV - best_BI[:, :1]))
    enough_B = top_p_B * jnp.where(keeps_all_B, total_B, mass_BI[:, -1])
    index_B1 = jnp.minimum(_count(mass_BI < enough_B[:, None]), size - 1)[:, None]
    nucleus_B = jnp.take_along_axis(best_BI, index_B1, axis=-1)[:, 0]
    # At 1 nothing may go, not even what is too unlikely to change the sum.
    is_nucleus_B = top_p_B < 1
    is_too_flat_B = is_nucleus_B & (
        (mass_BI[:, -1] < enough_B) | ((nucleus_B == best_BI[:, -1]) & (size < vocabulary))
    )
    least_B = jnp.where(is_nucleus_B, jnp.maximum(least_B, nucleus_B), least_B)
    return least_B, is_cut_short_B | is_too_flat_B


def _threshold_by_bisection(logits_BV: jax.Array, top_k_B: jax.Array, top_p_B: jax.Array) -> jax.Array:
    """The same threshold among all logits: 32 counts and 32 sums over V, several times slower."""
    order_BV = _ordered(logits_BV)
    weight_BV = jnp.exp(logits_BV - jnp.max(logits_BV, axis=-1, keepdims=True))
    k_B = jnp.where(top_k_B == 0, logits_BV.shape[-1], jnp.minimum(top_k_B, logits_BV.shape[-1]))
    least_B = _largest_that(lambda c_B: _count(order_BV >= c_B[:, None]) >= k_B, order_BV)

    def mass(c_B):
        return row_sum(jnp.where(order_BV >= jnp.maximum(c_B, least_B)[:, None], weight_BV, 0.0))

    enough_B = top_p_B * mass(least_B)
    nucleus_B = _largest_that(lambda c_B: mass(c_B) >= enough_B, order_BV)
    least_B = jnp.where(top_p_B < 1, jnp.maximum(least_B, nucleus_B), least_B)
    return _as_float(least_B)


def gumbel_noise(seed_2: jax.Array, position: jax.Array, token_I: jax.Array) -> jax.Array:
    """Standard Gumbel noise of some tokens, float32 [I]: argmax(logits + noise) draws from softmax(logits).

    The bits are those of the Threefry generator, keyed by seed and position and counted by token: the same
    on every device, in any step, beside any neighbours.
    """
    key = jax.random.fold_in(jax.random.wrap_key_data(seed_2, impl="threefry2x32"), position)
    words_I2 = jax.vmap(lambda token: jax.random.key_data(jax.random.fold_in(key, token)))(token_I)
    bits_I = words_I2[:, 0] ^ words_I2[:, 1]
    # The middles of 2^23 equal steps: exact in float32, and neither 0 nor 1.
    uniform_I = ((bits_I >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)
    return -jnp.log(-jnp.log(uniform_I))


def _ordered(x: jax.Array) -> jax.Array:
    """uint32 that compare as the float32 of `x` do."""
    bits = lax.bitcast_convert_type(jnp.where(x == 0, 0.0, x), jnp.uint32)  # −0 equals 0
    return jnp.where(bits >> 31 == 1, ~bits, bits | jnp.uint32(1 << 31))


def _as_float(order: jax.Array) -> jax.Array:
    """The float32 that `_ordered` made these of."""
    bits = jnp.where(order >> 31 == 1, order & jnp.uint32(0x7FFFFFFF), ~order)
    return lax.bitcast_convert_type(bits, jnp.float32)


def _count(mask_BV: jax.Array) -> jax.Array:
    return jnp.sum(mask_BV, axis=-1, dtype=jnp.int32)


def _largest_that(holds, order_BV: jax.Array) -> jax.Array:
    """The largest uint32 [B] for which `holds` is true; it is true up to some number and false above."""

    def set_bit(i, c_B):
        higher_B = c_B | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(holds(higher_B), higher_B, c_B)

    return lax.fori_loop(0, 32, set_bit, jnp.zeros(order_BV.shape[0], jnp.uint32))
