"""The weights of a decoder that is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from synapse_jax.spec.model import ModelSpec
from synapse_jax.train.first_weights import first_weights


class Decoder(nnx.Module):
    """One parameter for each of a model's own weights, and nothing else: the engine computes with them.

    Args:
        spec: the model.
        seed: of the first weights, 0 … 2³² − 1.
        kind: of the first weights, see `first_weights`.
    """

    def __init__(self, spec: ModelSpec, seed: int, kind: str = "gpt2"):
        first = first_weights(spec, kind, seed)
        self.parameters = nnx.Dict({name: nnx.Param(jnp.asarray(array)) for name, array in first.items()})

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
