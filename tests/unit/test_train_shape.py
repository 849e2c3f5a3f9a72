"""Shapes of small decoders."""

import dataclasses

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.families import FAMILIES
from synapse_jax.spec.rope_scaling import RopeScaling
from synapse_jax.train.shape import DecoderShape, shape_of

POLICIES = ("dense", "window:256", "compressed:window=256,block=4")


def test_the_default_has_3_28_million_parameters_and_1_kib_a_position():
    shape = DecoderShape()
    assert shape.parameters == 3_279_104 and shape.kv_position_bytes == 1024


@pytest.mark.parametrize("attention", POLICIES)
@pytest.mark.parametrize("sizes", [{}, dict(tied_output=False, layers=2, kv_heads=2, head_size=48, width=96)])
def test_parameters_are_those_of_the_weights(attention, sizes):
    shape = DecoderShape(attention=attention, **sizes)
    spec = shape.spec()
    sources = FAMILIES[spec.arch].weights(spec).values()
    assert shape.parameters == sum(int(np.prod(source.shape)) for source in sources)
    assert shape_of(spec) == shape
    assert spec.attention == attention and spec.arch == ("llama" if attention == "dense" else "synapse")


def test_a_policy_gets_its_canonical_form():
    assert DecoderShape(attention="compressed:block=4,window=64").attention == "compressed:window=64,block=4"


def test_numbers_are_what_files_hold():
    spec = DecoderShape(rope_base=12345.6789).spec()
    assert spec.norm_epsilon == float(np.float32(1e-5)) != 1e-5
    assert spec.rope_base == float(np.float32(12345.6789))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (dict(vocabulary=0), "vocab_size is 0"),
        (dict(layers=2.0), "layers is 2.0"),
        (dict(kv_heads=3), "kv_heads 3 does not divide query_heads 4"),
        (dict(head_size=63), "rotary_size 63 is odd"),
        (dict(context=-1), "trained_context is -1"),
        (dict(rope_base=0.0), "rope_base is 0.0"),
        (dict(rope_base=float("nan")), "rope_base is nan"),
        (dict(norm_epsilon=1e-60), "norm_epsilon is 0.0"),
        (dict(norm_epsilon="small"), "norm_epsilon is 'small'"),
        (dict(tied_output=1), "tied_output is 1"),
        (dict(attention="window:0"), "window 0"),
        (dict(attention="nothing"), "'nothing' is not supported"),
        (dict(attention="pages:budget=512,window=256"), "no model is trained with it"),
    ],
)
def test_what_no_decoder_has_is_refused(sizes, words):
    with pytest.raises(InputError) as caught:
        DecoderShape(**sizes)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        dict(arch="qwen2"),
        dict(arch="synapse"),
        dict(qkv_bias=True),
        dict(qk_norm=True),
        dict(rotary_size=32),
        dict(window=16, window_layers=(True, False, True, True)),
        dict(rope_scaling=RopeScaling("linear", factor=2.0)),
        dict(attention="window:16"),
    ],
)
def test_other_models_have_no_shape(change):
    spec = dataclasses.replace(DecoderShape().spec(), **change)
    field = "arch" if "attention" in change else next(iter(change))
    with pytest.raises(InputError, match=f"model: {field} is "):
        shape_of(spec)
