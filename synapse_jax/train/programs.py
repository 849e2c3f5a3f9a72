"""The compiled programs of a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from synapse_jax.graph.lower import Params
from synapse_jax.graph.sequences import Angles, angles
from synapse_jax.graph.training import TrainState, held_out_nll, train_step
from synapse_jax.ir.build import build
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from synapse_jax.train.first_weights import weight_shapes
from synapse_jax.train.optimizer import build_optimizer
from synapse_jax.train.plan import TrainingPlan
from synapse_jax.train.shape import DecoderShape


@dataclasses.dataclass(frozen=True, eq=False)
class Programs:
    """What is compiled for a shape and a plan: one step, and the NLL of as many windows."""

    ir: ModelIR
    """The model."""
    device: jax.Device
    """Where they run."""
    optimizer: optax.GradientTransformation
    """Makes the first state."""
    angles: Angles
    """Of S positions."""
    _step: Callable = dataclasses.field(repr=False)
    _nll: Callable = dataclasses.field(repr=False)

    def step(self, state: TrainState, windows: np.ndarray) -> tuple[TrainState, jax.Array]:
        """(state after a step on windows [rows, S + 1], mean NLL before it); the state is donated."""
        return self._step(state, *_sides(windows), self.angles)

    def nll(self, weights: Params, windows: np.ndarray) -> np.ndarray:
        """NLL of every target of windows [rows, S + 1], float32 [rows, S], in nats."""
        return np.asarray(self._nll(weights, *_sides(windows), self.angles))


def compile_programs(shape: DecoderShape, plan: TrainingPlan, device: jax.Device) -> Programs:
    """The programs of a run, compiled now or remembered: plans that differ in what is learned share them."""
    return _compile(shape, plan.rule, device)


@functools.lru_cache(maxsize=8)
def _compile(shape: DecoderShape, plan: TrainingPlan, device: jax.Device) -> Programs:
    spec = shape.spec()
    ir = build(spec, resolve(RuntimeProfile(), spec))
    turning, optimizer = angles(ir, plan.length), build_optimizer(plan)
    weights = {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in weight_shapes(spec).items()}
    side = jax.ShapeDtypeStruct((plan.rows, plan.length), jnp.int32)
    state = TrainState(weights, jax.eval_shape(optimizer.init, weights))
    with jax.default_device(device):
        step = train_step(ir, optimizer.update).lower(state, side, side, turning).compile()
        nll = held_out_nll(ir).lower(weights, side, side, turning).compile()
    return Programs(ir, device, optimizer, turning, step, nll)


def _sides(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and targets, int32 [rows, S] each."""
    return windows[:, :-1], windows[:, 1:]
