"""The weights of a decoder that is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from synapse_jax.io.families import FAMILIES
from synapse_jax.spec.model import ModelSpec
from synapse_jax.train.seeds import random_state

SPREAD = 0.02
"""Standard deviation of the first weights."""
RESIDUAL_PARTS = ("o", "down")
"""Projections whose output is added to the residual stream."""


class Decoder(nnx.Module):
    """One parameter for each of a model's own weights, and nothing else: the engine computes with them.

    First weights are GPT-2's (Radford et al. 2019, §2.3, and its published code): normal with standard
    deviation 0.02, divided by √(2L) in the two projections of each of L layers that add to the residual
    stream; norms are 1. The draws of a weight depend on the seed and on its name alone.

    Args:
        spec: the model.
        seed: of the first weights, 0 … 2³² − 1.
    """

    def __init__(self, spec: ModelSpec, seed: int):
        shapes = weight_shapes(spec)
        self.parameters = nnx.Dict(
            {name: nnx.Param(_first_weight(spec, name, shape, seed)) for name, shape in shapes.items()}
        )

    def weights(self) -> dict[str, jax.Array]:
        """float32 arrays by canonical name, as a model file is read."""
        return {name: parameter[...] for name, parameter in self.parameters.items()}

    def replace(self, weights: Mapping[str, Any]) -> None:
        """Takes other values for all weights.

        Raises:
            ValueError: a weight is missing, too many, or of another shape or type.
        """
        if set(weights) != set(self.parameters):
            raise ValueError(f"weights of other names: {sorted(set(weights) ^ set(self.parameters))}")
        for name, parameter in self.parameters.items():
            value = jnp.asarray(weights[name])
            if (value.shape, value.dtype) != (parameter.shape, parameter.dtype):
                raise ValueError(
                    f"weight {name} is {value.dtype} {value.shape}, not {parameter.dtype} {parameter.shape}"
                )
            parameter[...] = value


def weight_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Shapes of a model's own weights by canonical name."""
    return {name: source.shape for name, source in FAMILIES[spec.arch].weights(spec).items()}


def _first_weight(spec: ModelSpec, name: str, shape: tuple[int, ...], seed: int) -> jax.Array:
    if len(shape) == 1:
        return jnp.ones(shape, jnp.float32)
    is_residual = name.rpartition(".")[2] in RESIDUAL_PARTS
    spread = SPREAD / math.sqrt(2 * spec.layers) if is_residual else SPREAD
    draws = random_state("weight", seed, name).standard_normal(shape)
    return jnp.asarray((spread * draws).astype(np.float32))
