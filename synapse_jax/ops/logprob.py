"""From a block of logits to what is kept of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from synapse_jax.ops.linear import row_sum


def nll_and_greedy(logits_RV: jax.Array, target_R: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood of the targets, and the most likely tokens.

    NLL = ln Σ_v exp(l_v − max) + max − l_target, in float32. Ties go to the lowest token. A NaN
    anywhere in a row makes its NLL NaN.

    Args:
        logits_RV: float32 [R, V].
        target_R: int32 [R]; −1 asks for the NLL of the greedy token itself.

    Returns:
        nll float32 [R] in nats, greedy int32 [R].
    """
    greedy_R = jnp.argmax(logits_RV, axis=-1).astype(jnp.int32)
    return nll_of(logits_RV, jnp.where(target_R < 0, greedy_R, target_R)), greedy_R


def nll_of(logits_RV: jax.Array, token_R: jax.Array) -> jax.Array:
    """NLL of one token a row, float32 [R]; as in `nll_and_greedy`.

    Args:
        logits_RV: float32 [R, V].
        token_R: int32 [R], each below V.
    """
    top_R = jnp.max(logits_RV, axis=-1)
    log_sum_R = jnp.log(row_sum(jnp.exp(logits_RV - top_R[:, None]))) + top_R
    chosen_RV = jnp.take_along_axis(logits_RV, token_R[:, None], axis=-1, mode="promise_in_bounds")
    return log_sum_R - chosen_RV[:, 0]
