"""Weights on the device: their values, their types, and what the CPU device takes over without a copy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from synapse_jax.ir.build import build
from synapse_jax.ops.dtypes import weight_dtype
from synapse_jax.runtime import params
from synapse_jax.runtime.params import load_params
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

CPU = jax.devices("cpu")[0]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("layers", ["unrolled", "scan"])
def test_weights_are_taken_over_as_they_were_read(monkeypatch, precision, layers):
    model, made, allocate = TinyModel(Tiny(layers=2)), [], params._aligned

    def remembered(*arguments):
        made.append(allocate(*arguments))
        return made[-1]

    monkeypatch.setattr(params, "_aligned", remembered)
    ir = build(model.spec, resolve(RuntimeProfile(precision=precision, layers=layers), model.spec))
    loaded = load_params(ir, model, CPU)
    for weight, host in zip(ir.weights(), made, strict=True):
        placed = loaded[weight.name]
        assert placed.unsafe_buffer_pointer() == host.ctypes.data
        assert placed.shape == weight.shape
        assert placed.dtype == weight_dtype(weight.shape, precision, weight.layers)
        parts = np.concatenate([model.read_weight(name).reshape(-1) for name in weight.parts])
        assert np.array_equal(np.asarray(placed).reshape(-1), parts.astype(placed.dtype))


@pytest.mark.parametrize("change", [lambda part: part[:-1], lambda part: np.concatenate([part, part])])
def test_weights_of_another_shape_are_refused(change):
    class Wrong(TinyModel):
        def read_weight(self, name):
            part = super().read_weight(name)
            return change(part) if name == "layers.0.o" else part

    model = Wrong(Tiny(layers=1))
    ir = build(model.spec, resolve(RuntimeProfile(), model.spec))
    with pytest.raises(ValueError, match=r"layers\.0\.o"):
        load_params(ir, model, CPU)
