"""Matrix products: with weights, with ones to sum rows; and rows of the embedding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def linear(x_TI: jax.Array, weight_OI: jax.Array, bias_O: jax.Array | None = None) -> jax.Array:
    """y = x·Wᵀ + b with float32 accumulation.

    Inputs enter the product in the weight's type. The weight is stored [out, in] and both operands
    contract their last axis: of the layouts tried, it is the one whose rows have the same bits for
    any number of rows from 2 up (BUILD.md, "Rows and bits").

    Args:
        x_TI: float32 [T, in].
        weight_OI: f32 or bf16 [out, in].
        bias_O: float32 [out], added after the product.

    Returns:
        float32 [T, out].
    """
    y_TO = lax.dot_general(
        x_TI.astype(weight_OI.dtype),
        weight_OI,
        (((1,), (1,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return y_TO if bias_O is None else y_TO + bias_O[None, :]


SUM_BLOCK = 64
"""Elements that `row_sum` adds one after the other."""


def row_sum(x_RI: jax.Array) -> jax.Array:
    """Sums over the last axis, float32 [R, in] → [R], as products with ones.

    A plain reduction adds in another order once it has 4,096 elements, so a row's sum would depend on how
    many rows are summed with it; a product's rows do not. Eight equal columns keep it off the
    matrix-vector path. Sums of blocks are summed again, since a product adds one by one and a long chain
    of float32 additions loses digits.
    """
    rows, size = x_RI.shape
    if size > SUM_BLOCK:
        blocks = -(-size // SUM_BLOCK)
        padded = jnp.pad(x_RI, ((0, 0), (0, blocks * SUM_BLOCK - size)))
        return row_sum(row_sum(padded.reshape(rows * blocks, SUM_BLOCK)).reshape(rows, blocks))
    return linear(x_RI, jnp.ones((8, size), x_RI.dtype))[:, 0]


def embed(tokens_T: jax.Array, table_VD: jax.Array, scale: float = 1.0) -> jax.Array:
    """Rows of the embedding table times a factor, float32 [T, D].

    Args:
        tokens_T: int32 [T], each below V: the host has checked them.
        table_VD: f32 or bf16 [V, D].
        scale: the factor.
    """
    x_TD = table_VD.at[tokens_T].get(mode="promise_in_bounds").astype(jnp.float32)
    return x_TD if scale == 1 else x_TD * jnp.float32(scale)
