"""Which type a weight has on the device."""

from __future__ import annotations

import jax.numpy as jnp

_MATRIX = {"f32": jnp.float32, "bf16": jnp.bfloat16}


def weight_dtype(shape: tuple[int, ...], precision: str, layers: int = 0):
    """Matrices take the precision's type; norm weights and biases stay float32.

    Args:
        shape: the weight's shape.
        precision: `f32` or `bf16`.
        layers: layers along the first axis of the shape; 0 where it has no such axis.
    """
    return _MATRIX[precision] if len(shape[1:] if layers else shape) > 1 else jnp.float32
