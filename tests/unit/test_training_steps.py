"""The differentiated forward pass: attention by rows, the head's loss with its gradient, one step."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.graph.entry import abstract_params
from synapse_jax.graph.sequences import angles, loss_function
from synapse_jax.graph.training import TrainState, held_out_nll, mean_loss, stacked, train_step
from synapse_jax.ir.build import build
from synapse_jax.ops.attention.sequences import QUERY_ROWS, Turns, attend_sequence
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from synapse_jax.train.decoder import Decoder
from synapse_jax.train.shape import DecoderShape

S = QUERY_ROWS + 37
POLICIES = ("dense", "window:20", "compressed:window=20,block=4")


@functools.cache
def model(attention: str, **sizes):
    """IR and first weights of a small decoder; matrices are larger than in training, so that all matters."""
    small = dict(vocabulary=300, width=32, layers=1, query_heads=4, kv_heads=2, head_size=8, ffn_width=48)
    spec = DecoderShape(**{**small, "context": S, "attention": attention, **sizes}).spec()
    ir = build(spec, resolve(RuntimeProfile(), spec))
    weights = {name: 8 * w if w.ndim == 2 else w for name, w in Decoder(spec, 3).weights().items()}
    return ir, weights


def some_tokens(rows: int, *, seed: int = 0):
    windows = np.random.RandomState(seed).randint(0, 300, (rows, S + 1)).astype(np.int32)
    return windows[:, :-1], windows[:, 1:]


def plain_attention(q, k, v, scale, window, turns):
    """Every row by its definition, in float64; turns is the angle by which key j of a block is turned."""
    length, heads, _ = q.shape
    group, out = heads // k.shape[1], np.zeros(q.shape)
    block = 0 if turns is None else len(turns)
    for p in range(length):
        for n in range(heads):
            keys, values = k[: p + 1, n // group], v[: p + 1, n // group]
            if window:
                left = max(p - window + 1, 0)
                keys, values = keys[left:], values[left:]
                for i in range(left // block if block else 0):
                    mine = slice(i * block, (i + 1) * block)
                    mean = np.mean([turned(x, turns[j]) for j, x in enumerate(k[mine, n // group])], axis=0)
                    keys = np.vstack([keys, mean])
                    values = np.vstack([values, v[mine, n // group].mean(0)])
            scores = keys @ q[p, n] * scale
            weights = np.exp(scores - scores.max())
            out[p, n] = weights @ values / weights.sum()
    return out.reshape(length, -1)


def turned(x, angle):
    half = len(x) // 2
    a, b = x[:half], x[half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])


@pytest.mark.parametrize(
    ("length", "window", "block"),
    [
        (1, 0, 0),
        (QUERY_ROWS, 0, 0),
        (S, 0, 0),
        (S, 1, 0),
        (S, QUERY_ROWS, 0),
        (S, QUERY_ROWS + 1, 0),
        (S, 1000, 0),
        (3, 5, 4),
        (S, 1, 1),
        (S, 20, 4),
        (S, QUERY_ROWS, 7),
        (S, QUERY_ROWS + 1, 4),
        (S, 3, 100),
    ],
)
def test_rows_taken_at_once_attend_as_each_alone(length, window, block):
    random = np.random.RandomState(length + window + block)
    q, k, v = (random.standard_normal((length, heads, 8)).astype(np.float32) for heads in (4, 2, 2))
    angle = random.uniform(-3, 3, (block, 4)) if block else None
    turns = None if angle is None else Turns(*(f(angle).astype(np.float32) for f in (np.cos, np.sin)))
    found = attend_sequence(jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), 0.5, window, turns)
    wanted = plain_attention(*(x.astype(np.float64) for x in (q, k, v)), 0.5, window, angle)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_no_row_learns_from_what_it_does_not_see():
    random = np.random.RandomState(0)
    q, k, v = (jnp.asarray(random.standard_normal((S, heads, 8)).astype(np.float32)) for heads in (4, 2, 2))
    row = QUERY_ROWS + 2

    def one_row(k, v):
        return attend_sequence(q, k, v, 0.5, 20)[row].sum()

    for gradient in jax.grad(one_row, (0, 1))(k, v):
        reached = np.flatnonzero(np.abs(gradient).sum((1, 2)))
        assert np.isfinite(gradient).all() and reached.tolist() == list(range(row - 19, row + 1))


@pytest.mark.parametrize("attention", POLICIES)
def test_the_loss_and_its_gradients_are_those_of_the_engine(attention):
    ir, weights = model(attention)
    tokens, targets = some_tokens(3)
    params, turning = stacked(ir, weights), angles(ir, S)

    def engine(params):
        return jnp.mean(loss_function(ir)(params, tokens, targets, turning))

    wanted, wanted_gradients = jax.jit(jax.value_and_grad(engine))(params)
    loss = jax.jit(jax.value_and_grad(lambda params: mean_loss(ir)(params, tokens, targets, turning)))
    found, gradients = loss(params)
    assert found == pytest.approx(float(wanted), abs=1e-5)
    for name, gradient in wanted_gradients.items():
        size = float(jnp.abs(gradient).max())
        assert size > 0, f"{name} decides nothing"
        np.testing.assert_allclose(gradients[name], gradient, atol=1e-5 * max(size, 1), err_msg=name)


def test_the_gradient_is_the_slope_of_the_loss():
    ir, weights = model("compressed:window=20,block=4", tied_output=False)
    tokens, targets = some_tokens(2)
    turning = angles(ir, S)
    random = np.random.RandomState(1)
    loss = jax.jit(lambda weights: mean_loss(ir)(stacked(ir, weights), tokens, targets, turning))
    gradients = jax.jit(jax.grad(lambda w: mean_loss(ir)(stacked(ir, w), tokens, targets, turning)))(weights)
    for name in weights:
        along = random.standard_normal(weights[name].shape).astype(np.float32)
        along *= 0.02 * float(jnp.linalg.norm(weights[name])) / np.linalg.norm(along)
        ahead, behind = (float(loss({**weights, name: weights[name] + s * along})) for s in (1, -1))
        slope = float((gradients[name] * along).sum())
        assert (ahead - behind) / 2 == pytest.approx(slope, rel=0.05, abs=2e-5), name


def test_stacking_makes_the_engines_arguments():
    ir, weights = model("dense")
    params = stacked(ir, weights)
    assert {name: x.shape for name, x in params.items()} == {
        name: x.shape for name, x in abstract_params(ir).items()
    }
    q_rows = weights["layers.0.q"].shape[0]
    assert (params["layers.0.qkv"][:q_rows] == weights["layers.0.q"]).all()
    assert (params["layers.0.gate_up"][-1] == weights["layers.0.up"][-1]).all()


def test_a_step_adds_what_the_optimizer_says_and_reports_the_loss_before_it():
    ir, weights = model("dense")
    tokens, targets = some_tokens(2)
    turning = angles(ir, S)

    def descend(gradients, state, weights):
        return {name: -0.01 * gradient for name, gradient in gradients.items()}, state + 1

    step = train_step(ir, descend)
    before = {name: np.asarray(x) for name, x in weights.items()}
    nll = held_out_nll(ir)(weights, tokens, targets, turning)
    assert nll.shape == (2, S)
    state, loss = step(TrainState(jax.tree.map(jnp.copy, weights), jnp.int32(4)), tokens, targets, turning)
    assert float(loss) == pytest.approx(float(nll.mean()), abs=1e-5)
    assert int(state.optimizer) == 5
    gradients = jax.jit(jax.grad(lambda w: mean_loss(ir)(stacked(ir, w), tokens, targets, turning)))(weights)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(state.weights[name], before[name] - 0.01 * gradient, atol=1e-6)
    _, after = step(state, tokens, targets, turning)
    assert float(after) < float(loss)


def test_a_state_is_given_away():
    ir, weights = model("dense")
    state = TrainState(jax.tree.map(jnp.copy, weights), ())
    train_step(ir, lambda gradients, state, weights: (gradients, state))(
        state, *some_tokens(1), angles(ir, S)
    )
    assert all(array.is_deleted() for array in state.weights.values())


def test_a_decoder_takes_whole_sets_of_weights_only():
    decoder = Decoder(DecoderShape(width=32, head_size=8, ffn_width=32, layers=1).spec(), 0)
    weights = decoder.weights()
    decoder.replace({name: 2 * x for name, x in weights.items()})
    assert (decoder.weights()["embed"] == 2 * weights["embed"]).all()
    with pytest.raises(ValueError, match="embed"):
        decoder.replace({name: x for name, x in weights.items() if name != "embed"})
    with pytest.raises(ValueError, match="embed"):
        decoder.replace({**weights, "embed": weights["embed"][:-1]})
