"""The weights that a training begins with."""

from __future__ import annotations

import math

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.families import FAMILIES
from synapse_jax.spec.model import ModelSpec
from synapse_jax.train.seeds import random_state

Weights = dict[str, np.ndarray]
"""float32 by canonical name."""

KINDS = ("gpt2", "copying")

SPREAD = 0.02
"""Standard deviation of what is drawn."""
RESIDUAL_PARTS = ("o", "down")
"""Projections whose output is added to the residual stream."""

SHIFT_GAP = 3.0
"""By how much the score of the position before exceeds those beside it, in the head that looks there."""
MATCH_SCORE = 17.0
"""Mean score of a key that holds the query's own token."""
MATCH_ANGLE = 0.8
"""Largest turn over the whole context, in radians, of the pairs that match tokens."""
COPY_GAIN = 10.0
"""What is copied, over what an embedding holds."""
FINAL_NORM = 4.0
"""Weight of the last norm: tied embeddings of so small a spread could not name a token with confidence."""


def first_weights(spec: ModelSpec, kind: str, seed: int) -> Weights:
    """Weights by canonical name.

    `gpt2`: those of GPT-2 (Radford et al. 2019, §2.3, and its published code): normal with standard deviation
    0.02, divided by √(2L) in the two projections of each of L layers that add to the residual stream; norms
    are 1. The draws of a weight depend on the seed and on its name alone.

    `copying`: see `_copying`.

    Args:
        spec: the model.
        kind: one of `KINDS`.
        seed: 0 … 2³² − 1.

    Raises:
        InputError: the model is too small for a copying circuit.
    """
    check_first_weights(spec, kind)
    weights = {name: _drawn(spec, name, shape, seed) for name, shape in weight_shapes(spec).items()}
    return _copying(spec, weights, seed) if kind == "copying" else weights


def weight_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Shapes of a model's own weights by canonical name."""
    return {name: source.shape for name, source in FAMILIES[spec.arch].weights(spec).items()}


def check_first_weights(spec: ModelSpec, kind: str) -> None:
    """Refuses a model that cannot begin with weights of that kind.

    Raises:
        InputError: it is too small for a copying circuit.
    """
    if kind != "copying":
        return
    needed = 2 * spec.head_size + 1
    if spec.layers < 2 or spec.width < needed:
        raise InputError(
            f"training: first weights that copy need 2 layers and width {needed}; the model has "
            f"{spec.layers} and {spec.width}"
        )
    if not _matching_pairs(spec):
        raise InputError(
            f"training: first weights that copy need RoPE pairs that turn by {MATCH_ANGLE} at most over "
            f"{spec.trained_context} positions; base {spec.rope_base:g} has none"
        )


def _drawn(spec: ModelSpec, name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    is_residual = name.rpartition(".")[2] in RESIDUAL_PARTS
    spread = SPREAD / math.sqrt(2 * spec.layers) if is_residual else SPREAD
    return (spread * random_state("weight", seed, name).standard_normal(shape)).astype(np.float32)


def _copying(spec: ModelSpec, weights: Weights, seed: int) -> Weights:
    """GPT-2's weights with an induction head (Olsson et al., arXiv 2209.11895) put in by hand.

    The residual stream has three parts: H dimensions that embeddings leave empty, one that is the same in all
    of them, and the rest, where a token is known by. Head 0 of layer 0 looks at the position before and puts
    H numbers of its token into the empty part. Head 0 of layer 1 looks for positions whose empty part
    holds the query's own token and adds what stands there, so that it is said next. It matches with those
    pairs of RoPE only that turn little over the context. All other projections that add to the residual
    stream are 0 and learn to be more; weights from hand-made structure are known as mimetic (Trockman and
    Kolter, arXiv 2305.09828).
    """
    H, D, half = spec.head_size, spec.width, spec.head_size // 2
    theta = _angles(spec)
    empty, constant, token = np.arange(H), H, np.arange(H + 1, D)
    named, copied = (_projection(H, token, D, seed, name) for name in ("named", "copied"))
    for name, weight in weights.items():
        if name.rpartition(".")[2] in RESIDUAL_PARTS:
            weight[:] = 0
    level = math.sqrt(D) / 2  # after a norm: a quarter of the embedding's energy
    embed = weights["embed"]
    embed[:, empty], embed[:, constant] = 0, SPREAD * level

    shift = np.arange(max(1, half // 4))
    size = math.sqrt(SHIFT_GAP * math.sqrt(H) / np.sum(1 - np.cos(theta[shift]))) / level
    weights["layers.0.k"][shift, constant] += size
    # The query stands one position earlier than it is: its pairs are turned back by θ.
    weights["layers.0.q"][shift, constant] += size * np.cos(theta[shift])
    weights["layers.0.q"][half + shift, constant] -= size * np.sin(theta[shift])
    weights["layers.0.v"][:H] = named
    weights["layers.0.o"][empty, empty] = SPREAD

    pairs = _matching_pairs(spec)
    rows = np.concatenate([half - np.arange(1, pairs + 1), H - np.arange(1, pairs + 1)])
    size = math.sqrt(MATCH_SCORE * math.sqrt(H) / len(rows))
    weights["layers.1.k"][rows, rows] += size
    weights["layers.1.q"][rows] += size * named[rows]
    weights["layers.1.v"][:H] = copied
    weights["layers.1.o"][:, :H] = SPREAD * COPY_GAIN * copied.T
    weights["final_norm"][:] = FINAL_NORM
    return weights


def _angles(spec: ModelSpec) -> np.ndarray:
    """θ of every pair, radians a position, float64 [H/2]."""
    half = spec.head_size // 2
    return spec.rope_base ** (-np.arange(half) / half)


def _matching_pairs(spec: ModelSpec) -> int:
    """How many pairs, counted from the slowest, turn little enough to match tokens over the whole context."""
    return int(np.sum(_angles(spec) * spec.trained_context <= MATCH_ANGLE))


def _projection(rows: int, columns: np.ndarray, width: int, seed: int, name: str) -> np.ndarray:
    """Orthonormal rows of random direction that read some columns only, float32 [rows, width]."""
    draws = random_state("weight", seed, name).standard_normal((len(columns), rows))
    projection = np.zeros((rows, width), np.float32)
    projection[:, columns] = np.linalg.qr(draws)[0].T
    return projection
