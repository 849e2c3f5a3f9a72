"""Weights on the device: one tensor at a time, at the session's precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Protocol

import jax
import numpy as np

from synapse_jax.ir.nodes import ModelIR, Weight
from synapse_jax.ops.dtypes import weight_dtype
from synapse_jax.spec.model import ModelSpec

_ALIGNMENT = 64
"""Bytes: XLA's CPU runtime takes a host's array over if it starts at a multiple of these."""


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
        params[weight.name] = jax.device_put(_read(weight, source, ir.profile.precision), device)
        report(done + 1, len(weights))
    return params


def _read(weight: Weight, source: WeightSource, precision: str) -> np.ndarray:
    """A weight argument, its parts one after the other; of a loop over layers, those of all of them."""
    dtype = np.dtype(weight_dtype(weight.shape, precision, weight.layers))
    rows = weight.shape[0] * weight.shape[1] if weight.layers else weight.shape[0]
    whole, end = _aligned((rows, *weight.shape[2 if weight.layers else 1 :]), dtype), 0
    for name in weight.parts:
        part = source.read_weight(name)
        if part.shape[1:] != whole.shape[1:] or end + len(part) > rows:
            raise ValueError(f"weight {name} is {part.shape}: {weight.name} is {weight.shape}")
        whole[end : end + len(part)] = part
        end += len(part)
    if end < rows:
        raise ValueError(f"weight {weight.name} has {end} rows, the model needs {weight.shape}")
    return whole.reshape(weight.shape)


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that the CPU device takes over as it is; any other is copied, after the call has returned."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)
