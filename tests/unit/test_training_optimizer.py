"""The optimizers: what decays, what Muon is for, the rate of each step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.train.optimizer import MUON_RMS, build_optimizer
from synapse_jax.train.plan import OPTIMIZERS, TrainingPlan

SHAPES = {"embed": (12, 8), "layers.0.q": (8, 8), "layers.0.down": (8, 24), "layers.0.attn_norm": (8,)}


def plan(**fields) -> TrainingPlan:
    given = dict(tokens=40, rows=2, length=2, warmup_share=0.0, decay_share=1.0, peak_rate=0.5, clip=1e9)
    return TrainingPlan(**{**given, **fields})


def arrays(seed: int, scale: float = 1.0) -> dict:
    random = np.random.RandomState(seed)
    return {
        name: jnp.asarray((scale * random.standard_normal(shape)).astype(np.float32))
        for name, shape in SHAPES.items()
    }


def updates(plan: TrainingPlan, gradients: list[dict]) -> list[dict]:
    optimizer, weights = build_optimizer(plan), arrays(0)
    state, out = optimizer.init(weights), []
    for gradient in gradients:
        update, state = optimizer.update(gradient, state, weights)
        out.append({name: np.asarray(array) for name, array in update.items()})
    return out


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_matrices_decay_with_the_rate_of_each_step_and_norms_do_not(optimizer):
    a_plan, weights = plan(optimizer=optimizer, weight_decay=0.3), arrays(0)
    found = updates(a_plan, [arrays(1, scale=0.0)] * 3)
    for step, update in enumerate(found):
        for name, array in update.items():
            decay = 0.3 if array.ndim == 2 else 0.0
            np.testing.assert_allclose(array, -a_plan.rate(step) * decay * weights[name], atol=1e-6)


def test_muon_makes_matrices_of_layers_orthogonal_and_leaves_the_rest_to_adamw():
    gradients = [arrays(1), arrays(2)]
    muon, adamw = (updates(plan(optimizer=name, weight_decay=0.0), gradients) for name in OPTIMIZERS[::-1])
    for step, (update, other) in enumerate(zip(muon, adamw, strict=True)):
        for name, array in update.items():
            if not name.startswith("layers.") or array.ndim == 1:
                # optax compiles for all arrays of a rule together, and the rules have not the same ones.
                np.testing.assert_allclose(array, other[name], rtol=1e-6)
                continue
            size = plan().rate(step) * MUON_RMS * max(array.shape) ** 0.5
            singular = np.linalg.svd(array / size, compute_uv=False)
            assert 0.6 < singular.min() and singular.max() < 1.3, name


def test_adamw_is_as_published():
    """Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, in float64."""
    a_plan = plan(optimizer="adamw", weight_decay=0.1)
    gradients, weights = [arrays(1), arrays(2)], arrays(0)
    found = updates(a_plan, gradients)
    for name, weight in weights.items():
        m, v, decay = 0.0, 0.0, 0.1 if weight.ndim == 2 else 0.0
        for step, gradient in enumerate(np.asarray(g[name], np.float64) for g in gradients):
            m, v = 0.9 * m + 0.1 * gradient, 0.95 * v + 0.05 * gradient**2
            m_hat, v_hat = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.95 ** (step + 1))
            wanted = -a_plan.rate(step) * (m_hat / (np.sqrt(v_hat) + 1e-8) + decay * np.asarray(weight))
            np.testing.assert_allclose(found[step][name], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_embedding_alone_learns_at_its_own_rate(optimizer):
    gradients = [arrays(1), arrays(2)]
    slow, usual = (updates(plan(optimizer=optimizer, embedding_rate=share), gradients) for share in (0.25, 1))
    for update, other in zip(slow, usual, strict=True):
        for name, array in update.items():
            share = 0.25 if name == "embed" else 1
            np.testing.assert_allclose(array, share * other[name], rtol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_only_the_direction_of_large_gradients_counts(optimizer):
    a_plan = plan(optimizer=optimizer, clip=1.0)
    once, large = (updates(a_plan, [arrays(1, s), arrays(2, 0.001)]) for s in (10.0, 1000.0))
    free = updates(plan(optimizer=optimizer), [arrays(1, 10.0), arrays(2, 0.001)])
    for name in SHAPES:
        np.testing.assert_allclose(once[1][name], large[1][name], rtol=1e-3, atol=1e-5)
    assert any(np.abs(free[1][name] - once[1][name]).max() > 1e-3 for name in SHAPES)
