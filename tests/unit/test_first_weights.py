"""What a training begins with: the draws, and the induction head that is put in by hand."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.graph.sequences import angles
from synapse_jax.graph.training import held_out_nll
from synapse_jax.ir.build import build
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from synapse_jax.train.first_weights import FINAL_NORM, SPREAD, first_weights, weight_shapes
from synapse_jax.train.shape import DecoderShape

SHAPE = DecoderShape(context=256, rope_base=1e6)


def test_gpt2_weights_follow_from_seed_and_name():
    spec = DecoderShape(context=64).spec()
    weights, same, other = (first_weights(spec, "gpt2", seed) for seed in (5, 5, 6))
    assert {name: x.shape for name, x in weights.items()} == weight_shapes(spec)
    assert sum(x.size for x in weights.values()) == DecoderShape().parameters
    for name, array in weights.items():
        assert array.dtype == np.float32 and (array == same[name]).all()
        part = name.rpartition(".")[2]
        if array.ndim == 1:
            assert (array == 1).all()
        else:
            spread = 0.02 / 8**0.5 if part in ("o", "down") else 0.02
            assert float(array.std()) == pytest.approx(spread, rel=0.02), name
            assert not (array == other[name]).any()
    wider = first_weights(DecoderShape(context=64, layers=5).spec(), "gpt2", 5)
    assert (wider["layers.3.gate"] == weights["layers.3.gate"]).all()


@pytest.mark.parametrize("attention", ["dense", "compressed:window=128,block=4"])
@pytest.mark.parametrize("seed", [0, 1])
def test_copying_weights_copy_before_any_training_and_gpt2_s_do_not(attention, seed):
    """A span of random tokens, 96 others, the span again: the second costs less, its first token apart."""
    random, copied = np.random.RandomState(seed), {}
    tokens = random.randint(0, 4096, (2, 129))
    tokens[:, -16:] = tokens[:, 17:33]
    for kind in ("gpt2", "copying"):
        spec = DecoderShape(context=256, rope_base=1e6, attention=attention).spec()
        ir = build(spec, resolve(RuntimeProfile(), spec))
        weights = first_weights(spec, kind, seed)
        nll = np.asarray(held_out_nll(ir)(weights, tokens[:, :-1], tokens[:, 1:], angles(ir, 128)))
        copied[kind] = float(nll[:, 16:32].mean() - nll[:, -15:].mean())
    assert copied["copying"] > 5 and abs(copied["gpt2"]) < 0.3


def test_copying_weights_are_gpt2_s_outside_the_circuit():
    spec = SHAPE.spec()
    weights, plain = (first_weights(spec, kind, 3) for kind in ("copying", "gpt2"))
    H = SHAPE.head_size
    for name, array in weights.items():
        layer, part = int(name.split(".")[1]) if name.startswith("layers.") else -1, name.rpartition(".")[2]
        if part in ("o", "down") and (part == "down" or layer > 1):
            assert not array.any(), name
        elif part in ("gate", "up", "attn_norm", "ffn_norm") or (layer in (2, 3) and part in "qkv"):
            assert (array == plain[name]).all(), name
    assert (weights["layers.0.q"][H:] == plain["layers.0.q"][H:]).all()
    assert not weights["layers.1.o"][:, H:].any() and (weights["final_norm"] == FINAL_NORM).all()
    assert not weights["embed"][:, :H].any() and np.unique(weights["embed"][:, H]).size == 1
    assert weights["embed"][:, H + 1 :].std() == pytest.approx(SPREAD, rel=0.01)
    for name in ("layers.0.v", "layers.1.v"):
        np.testing.assert_allclose(weights[name] @ weights[name].T, np.eye(H), atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"layers": 1}, "need 2 layers and width 129; the model has 1 and 256"),
        ({"width": 128}, "need 2 layers and width 129; the model has 4 and 128"),
        ({"rope_base": 10.0}, "pairs that turn by 0.8 at most over 1024 positions; base 10 has none"),
    ],
)
def test_a_model_without_room_for_the_circuit_is_refused(fields, named):
    with pytest.raises(InputError, match=named):
        first_weights(DecoderShape(**fields).spec(), "copying", 0)
