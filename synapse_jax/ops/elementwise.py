"""Row-wise operations: norm, rotation, gate. All in float32."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.ops.linear import row_sum


def rms_norm(x_TD: jax.Array, weight_D: jax.Array, epsilon: float) -> jax.Array:
    """x / sqrt(mean(x²) + ε) · w over the last axis (Zhang and Sennrich, arXiv 1910.07467).

    Args:
        x_TD: float32 [T, D], or [T, heads, H] to norm each head.
        weight_D: float32 [D], or [H].
        epsilon: added to the mean square.

    Returns:
        float32 of the shape of `x_TD`.
    """
    size = x_TD.shape[-1]
    if x_TD.ndim == 3:
        heads = x_TD.shape[1]
        return rms_norm(x_TD.reshape(-1, size), weight_D, epsilon).reshape(-1, heads, size)
    mean_square_T = row_sum(x_TD * x_TD) / size
    return x_TD * lax.rsqrt(mean_square_T + epsilon)[:, None] * weight_D[None, :]


def rotate(x_TNH: jax.Array, cos_TR: jax.Array, sin_TR: jax.Array) -> jax.Array:
    """Rotary embedding on half-split pairs (i, i + R) of the leading 2R dimensions of each head.

    Args:
        x_TNH: float32 [T, heads, H].
        cos_TR: float32 [T, R], rows of the host's table.
        sin_TR: float32 [T, R].

    Returns:
        float32 [T, heads, H]; dimensions from 2R up pass unchanged.
    """
    pairs = cos_TR.shape[-1]
    cos, sin = cos_TR[:, None, :], sin_TR[:, None, :]
    a, b, rest = x_TNH[..., :pairs], x_TNH[..., pairs : 2 * pairs], x_TNH[..., 2 * pairs :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def silu_gate(gate_up_T2F: jax.Array) -> jax.Array:
    """silu(gate) · up = gate · up / (1 + exp(−gate)) (Shazeer, arXiv 2002.05202).

    Args:
        gate_up_T2F: float32 [T, 2F], gate first.

    Returns:
        float32 [T, F].
    """
    gate_TF, up_TF = jnp.split(gate_up_T2F, 2, axis=-1)
    return gate_TF * up_TF / (1 + jnp.exp(-gate_TF))


def gelu_gate(gate_up_T2F: jax.Array) -> jax.Array:
    """gelu(gate) · up with gelu in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415, §2).

    Args:
        gate_up_T2F: float32 [T, 2F], gate first.

    Returns:
        float32 [T, F].
    """
    gate_TF, up_TF = jnp.split(gate_up_T2F, 2, axis=-1)
    inner_TF = math.sqrt(2 / math.pi) * (gate_TF + 0.044715 * gate_TF * gate_TF * gate_TF)
    return 0.5 * gate_TF * (1 + jnp.tanh(inner_TF)) * up_TF
