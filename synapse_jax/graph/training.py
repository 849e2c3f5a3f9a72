"""Entries that train: one step of an optimizer, and the loss of windows that are held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.graph.lower import Params
from synapse_jax.graph.sequences import Angles, head_function, loss_function, residual_function
from synapse_jax.ir.nodes import ModelIR

Array = Any

Update = Callable[..., tuple[Any, Any]]
"""(gradients, optimizer state, weights) → (what is added to the weights, optimizer state), as in optax."""


class TrainState(NamedTuple):
    """What a training step changes. It is donated: a step's argument may not be used again."""

    weights: dict[str, Array]
    """float32 by the model's own names, before the IR stacks them."""
    optimizer: Any
    """The optimizer's tree of arrays."""


def stacked(ir: ModelIR, weights: Mapping[str, Array]) -> Params:
    """The weight arguments (`graph.entry.abstract_params`) that hold a model's own weights."""
    return {
        weight.name: weights[weight.parts[0]]
        if len(weight.parts) == 1
        else jnp.concatenate([weights[part] for part in weight.parts])
        for weight in ir.weights()
    }


def mean_loss(ir: ModelIR) -> Callable[[Params, Array, Array, Angles], jax.Array]:
    """The function (params, tokens int32 [B, S], targets int32 [B, S], angles) → mean NLL in nats.

    It is the mean of what `sequences.loss_function` gives. The head is the largest product of a small model
    and its logits its largest array, so the head's loss and its gradient are computed together, a sequence at
    a time: no more than [S, V] logits exist, and none are computed twice.
    """
    residual_of = residual_function(ir)
    names = {weight.name for node in ir.head.nodes for weight in node.weights}

    def call(params: Params, token_BS: Array, target_BS: Array, angles: Angles) -> jax.Array:
        x_BSD = residual_of(params, token_BS, angles)
        head = {name: params[name] for name in sorted(names)}
        return _head_loss(ir)(head, x_BSD, target_BS) / target_BS.size

    return call


def train_step(ir: ModelIR, update: Update) -> Callable[..., tuple[TrainState, jax.Array]]:
    """The compiled step (state, tokens int32 [B, S], targets int32 [B, S], angles) → (state, loss).

    The loss is the mean NLL before the step. The state is donated.

    Args:
        ir: the model.
        update: the optimizer's.
    """
    loss_of = mean_loss(ir)

    def step(state: TrainState, token_BS, target_BS, angles: Angles):
        def loss(weights):
            return loss_of(stacked(ir, weights), token_BS, target_BS, angles)

        value, gradients = jax.value_and_grad(loss)(state.weights)
        changes, optimizer = update(gradients, state.optimizer, state.weights)
        weights = {name: state.weights[name] + changes[name] for name in state.weights}
        return TrainState(weights, optimizer), value

    return jax.jit(step, donate_argnums=0)


def held_out_nll(ir: ModelIR) -> Callable[..., jax.Array]:
    """The compiled function (weights, tokens [B, S], targets [B, S], angles) → NLL float32 [B, S] in nats."""
    loss_of = loss_function(ir)

    def nll(weights: Params, token_BS, target_BS, angles: Angles):
        return loss_of(stacked(ir, weights), token_BS, target_BS, angles)

    return jax.jit(nll)


def _head_loss(ir: ModelIR) -> Callable[[Params, Array, Array], jax.Array]:
    """The function (weights of the head, x [B, S, D], targets [B, S]) → sum of the NLL."""

    def sequence_loss(params: Params, x_SD, target_S):
        logits_SV = head_function(ir, params)(x_SD)
        # A sum over a comparison instead of a look-up: its gradient is no scatter.
        is_target_SV = jnp.arange(logits_SV.shape[1], dtype=jnp.int32)[None, :] == target_S[:, None]
        return jnp.sum(jax.nn.logsumexp(logits_SV, axis=-1)) - jnp.sum(jnp.where(is_target_SV, logits_SV, 0))

    def with_gradients(params: Params, x_BSD, target_BS):
        def turn(sums, rows):
            value, (gradients, x_gradient_SD) = jax.value_and_grad(sequence_loss, (0, 1))(params, *rows)
            return jax.tree.map(jnp.add, sums, (value, gradients)), x_gradient_SD

        start = (jnp.float32(0), jax.tree.map(jnp.zeros_like, params))
        (value, gradients), x_gradient_BSD = lax.scan(turn, start, (x_BSD, target_BS))
        return value, (gradients, x_gradient_BSD)

    def pull_back(residuals, cotangent):
        scaled = jax.tree.map(lambda gradient: gradient * cotangent, residuals)
        return *scaled, None

    @jax.custom_vjp
    def loss(params: Params, x_BSD, target_BS):
        return with_gradients(params, x_BSD, target_BS)[0]

    loss.defvjp(with_gradients, pull_back)
    return loss
