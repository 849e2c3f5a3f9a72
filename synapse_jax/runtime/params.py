"""Weights on the device: one tensor at a time, at the session's precision."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import jax
import numpy as np

from synapse_jax.ir.nodes import ModelIR
from synapse_jax.ops.dtypes import weight_dtype
from synapse_jax.spec.model import ModelSpec


class WeightSource(Protocol):
    """Where weights come from: a model file or a test's dictionary."""

    def read_weight(self, name: str) -> np.ndarray:
        """A new float32 array: the weight of that name, half-split rotary order, linears [out, in]."""
        ...


class ModelSource(WeightSource, Protocol):
    """What a session needs of a model."""

    @property
    def spec(self) -> ModelSpec:
        """What the model computes."""
        ...

    @property
    def stop_ids(self) -> Collection[int]:
        """Tokens that end a continuation."""
        ...


def load_params(
    ir: ModelIR, source: WeightSource, device: jax.Device, progress: Callable[[int, int], None] | None = None
) -> dict[str, jax.Array]:
    """Reads, converts and places every weight of a model.

    Args:
        ir: names the weights and their shapes.
        source: gives each as float32.
        device: where they go.
        progress: called with (weights done, weights in all).

    Returns:
        Arrays by full name, matrices in the precision's type.

    Raises:
        ValueError: a weight has another shape than the IR says.
    """
    params = {}
    weights = list(ir.weights())
    report = progress or (lambda done, total: None)
    report(0, len(weights))
    for done, weight in enumerate(weights):
        parts = [source.read_weight(part) for part in weight.parts]
        dtype = weight_dtype(weight.shape, ir.profile.precision)
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        stacked = whole.astype(dtype, copy=False)
        if stacked.shape != weight.shape:
            raise ValueError(f"weight {weight.name} is {stacked.shape}, the model needs {weight.shape}")
        params[weight.name] = jax.device_put(stacked, device)
        report(done + 1, len(weights))
    return params
