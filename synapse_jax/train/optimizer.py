"""The optimizers of a plan, from optax."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from synapse_jax.train.plan import TrainingPlan

BETAS = (0.9, 0.95)
"""AdamW's decay rates of the two moments."""
MUON_BETA = 0.95
"""Muon's decay rate of the momentum (Jordan 2024)."""
MUON_RMS = 0.2
"""Root mean square of Muon's updates before the learning rate, about that of AdamW's (Liu et al., arXiv
2502.16982)."""


def build_optimizer(plan: TrainingPlan) -> optax.GradientTransformation:
    """AdamW, or Muon for the matrices of the layers and AdamW for the rest, behind a clip of the gradients.

    Weight decay is decoupled (Loshchilov and Hutter, arXiv 1711.05101) and of matrices only. Muon is Jordan's
    (2024): Nesterov momentum, made orthogonal by five Newton-Schulz turns, each of the model's own matrices
    alone. The embedding's rate is a share of the others'. The state is a tree of arrays; its count of steps
    looks the learning rate up.
    """
    rates = jnp.asarray([plan.rate(step) for step in range(plan.steps)], jnp.float32)

    def adamw(share: float) -> optax.GradientTransformation:
        return optax.adamw(
            lambda step: share * rates[step], *BETAS, weight_decay=plan.weight_decay, mask=_are_matrices
        )

    rules: dict[Hashable, Any] = {"adamw": adamw(1.0), "embedding": adamw(plan.embedding_rate)}
    if plan.optimizer == "muon":
        rules["muon"] = contrib.muon(
            lambda step: rates[step],
            beta=MUON_BETA,
            weight_decay=plan.weight_decay,
            consistent_rms=MUON_RMS,
        )
    return _chained(plan.clip, optax.partition(rules, functools.partial(_labels, plan.optimizer)))


def _chained(clip: float, rule: optax.GradientTransformation) -> optax.GradientTransformation:
    """The clip, then a rule; optax's code promotes types and ranks, which the engine's does not."""
    chain = optax.chain(optax.clip_by_global_norm(clip), rule)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        # Muon multiplies matrices, and float32 means float32 on every device.
        with (
            jax.default_matmul_precision("highest"),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            return chain.update(updates, state, params)

    return optax.GradientTransformation(chain.init, update)


def _are_matrices(weights: dict[str, Any]) -> dict[str, bool]:
    return {name: getattr(weight, "ndim", 0) == 2 for name, weight in weights.items()}


def _labels(optimizer: str, weights: dict[str, Any]) -> dict[str, str]:
    """Embedding and head are tables with a row a token: Muon is for the matrices of the layers."""

    def rule(name: str, weight: Any) -> str:
        if name == "embed":
            return "embedding"
        return optimizer if name.startswith("layers.") and weight.ndim == 2 else "adamw"

    return {name: rule(name, weight) for name, weight in weights.items()}
