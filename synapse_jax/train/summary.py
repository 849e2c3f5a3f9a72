"""A training run in a few figures."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np

from synapse_jax.train.log import HeldOutLine, StepLine
from synapse_jax.train.loop import Training
from synapse_jax.train.plan import TrainingPlan
from synapse_jax.train.shape import DecoderShape

TRAIN_LOSS_SHARE = 0.05
"""Share of the steps, at the end, that the training loss is a mean of."""


def training_summary(shape: DecoderShape, plan: TrainingPlan, training: Training) -> dict[str, Any]:
    """What a record says about a run.

    The error of the held-out loss is that of a mean over windows: tokens of one window depend on each other.
    Models that saw the same windows differ by far less than it.
    """
    losses = [line.loss for line in training.lines if isinstance(line, StepLine)]
    last = losses[-max(1, int(len(losses) * TRAIN_LOSS_SHARE)) :]
    by_window = training.held_out_nll.mean(axis=1, dtype=np.float64)
    error = by_window.std(ddof=1) / math.sqrt(len(by_window)) if len(by_window) > 1 else None
    return {
        "held_out_loss": training.held_out_loss,
        "held_out_error": None if error is None else float(error),
        "held_out_windows": len(by_window),
        "looks": [dataclasses.asdict(line) for line in training.lines if isinstance(line, HeldOutLine)],
        "train_loss": float(np.mean(last)),
        "train_loss_steps": len(last),
        "tokens": plan.steps * plan.step_tokens,
        "steps": plan.steps,
        "resumed_steps": training.resumed_steps,
        "seconds": next(line.seconds for line in reversed(training.lines) if isinstance(line, StepLine)),
        "parameters": shape.parameters,
        "weights_sha256": weights_sha256(training.weights()),
        "plan": dataclasses.asdict(plan),
        "plan_sha256": plan.digest,
        "shape": dataclasses.asdict(shape),
        "versions": {name: metadata.version(name) for name in ("flax", "optax", "orbax-checkpoint")},
    }


def weights_sha256(weights: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names and little-endian float32 bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name}\n".encode())
        digest.update(np.ascontiguousarray(weights[name], "<f4").tobytes())
    return digest.hexdigest()
