"""Which type a weight has on the device."""

from __future__ import annotations

import jax.numpy as jnp

_MATRIX = {"f32": jnp.float32, "bf16": jnp.bfloat16}


def weight_dtype(shape: tuple[int, ...], precision: str):
    """Matrices take the precision's type; norm weights and biases stay float32.

    Args:
        shape: the weight's shape.
        precision: `f32` or `bf16`.
    """
    return _MATRIX[precision] if len(shape) > 1 else jnp.float32
