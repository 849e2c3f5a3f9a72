"""Layers as a loop: the numbers of unrolled layers, in every policy and entry, and no second cache."""

from __future__ import annotations

import dataclasses
import time

import jax
import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.graph.compile import lower, lower_on
from synapse_jax.graph.entry import Entry
from synapse_jax.graph.fingerprint import explain, profile_identity
from synapse_jax.ir.build import build
from synapse_jax.kv.pages import abstract_pages
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.tiny import Tiny
from tests.tiny_model import TinyModel, tiny_spec

MODELS = {
    "llama": TinyModel(Tiny(context=1100, layers=3)),
    "qwen2": TinyModel(Tiny("qwen2", context=1100, layers=3)),
    "mistral": TinyModel(Tiny(context=1100, layers=3, window=100)),
}
PROFILES = {
    "dense": RuntimeProfile(page_size=64),
    "bf16": RuntimeProfile(page_size=64, precision="bf16", kv_dtype="bf16"),
    "pages": RuntimeProfile(page_size=64, attention="pages:budget=48,window=32,select=random"),
    "compressed": RuntimeProfile(page_size=64, attention="compressed:window=64,block=4"),
}
IDS = np.random.RandomState(4).randint(0, 288, 1100).astype(np.int32)
CASES = [(name, "dense") for name in MODELS] + [("llama", name) for name in PROFILES if name != "dense"]


def pair(model, profile):
    """Sessions of unrolled layers and of a loop."""
    return [
        Session(MODELS[model], dataclasses.replace(PROFILES[profile], layers=layers), ready=[])
        for layers in ("unrolled", "scan")
    ]


@pytest.mark.parametrize(("model", "profile"), CASES)
def test_a_loop_gives_the_bits_of_unrolled_layers(model, profile):
    """Prompts, decoding, reuse and a growth: not a bit differs on this backend."""
    unrolled, scan = pair(model, profile)
    for work in (
        lambda s: s.logits(IDS[:300], [0, 63, 64, 299]),
        lambda s: s.generate(IDS[:200], 24, stop_ids=[], reuse=True).token_ids,
        lambda s: s.generate([*IDS[:150], *IDS[300:340]], 8, stop_ids=[], reuse=True).token_ids,
        lambda s: s.score(IDS, 1000, rows=1 if s.profile.policy.is_decode_only else 512).nll,
    ):
        assert np.array_equal(work(unrolled), work(scan))
    assert scan.cache.capacity == unrolled.cache.capacity > 1024
    assert scan.cache.allocated_bytes == unrolled.cache.allocated_bytes
    assert scan.cache.live_bytes == unrolled.cache.live_bytes


def test_endings_of_one_prompt_share_its_pages():
    unrolled, scan = pair("llama", "dense")
    for one, other in zip(
        *(s.score_continuations(IDS[:100], [IDS[:9], IDS[20:60]]) for s in (unrolled, scan)), strict=True
    ):
        assert np.array_equal(one.nll, other.nll)


def test_layers_of_several_kinds_are_refused():
    model = TinyModel(Tiny("gemma3", layers=3, period=3, window=40, rope_base=1e6))
    with pytest.raises(InputError, match="layers=scan needs layers of one kind: layer 2 of gemma3 differs"):
        Session(model, RuntimeProfile(layers="scan"), ready=[])
    with pytest.raises(InputError, match="layer 1 of llama differs"):
        Session(
            MODELS["llama"],
            RuntimeProfile(layers="scan", attention="pages:budget=48,window=32,dense_layers=0"),
            ready=[],
        )
    with pytest.raises(InputError, match="layers 'rolled' is not supported; choose from unrolled, scan"):
        RuntimeProfile(layers="rolled")


def test_the_loop_is_a_named_part_of_the_identity():
    spec = MODELS["llama"].spec
    irs = [build(spec, resolve(RuntimeProfile(layers=layers), spec)) for layers in ("unrolled", "scan")]
    assert explain(*map(profile_identity, irs)) == ["layers"]


CAPACITY = 1 << 16


@pytest.mark.parametrize("kv_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("attention", ["dense", "pages:budget=1024,window=64,page=64"])
def test_a_loop_makes_no_second_cache(attention, kv_dtype):
    spec = tiny_spec(Tiny(context=CAPACITY, layers=4))
    profile = RuntimeProfile(attention=attention, kv_dtype=kv_dtype, layers="scan")
    ir = build(spec, resolve(profile, spec))
    shapes = abstract_pages(ir.spec, ir.profile, CAPACITY)
    cache = sum(pool.size * pool.dtype.itemsize for pool in shapes)
    layer = shapes[0].size * shapes[0].dtype.itemsize / spec.layers
    for entry in (Entry("step", 512, CAPACITY), Entry("decode", 1, CAPACITY)):
        memory = lower_on(ir, entry, jax.devices("cpu")[0]).lowered.compile().memory_analysis()
        assert memory.temp_size_in_bytes < layer / 2, entry
        assert memory.alias_size_in_bytes >= cache, entry


def deep(layers, width, ffn, heads, kv_heads, head_size, vocab):
    return dataclasses.replace(
        tiny_spec(Tiny(context=4096)),
        layers=layers,
        width=width,
        ffn_width=ffn,
        query_heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rotary_size=head_size,
        vocab_size=vocab,
    )


DEEP = {
    "24 layers, 0.5B": (deep(24, 896, 4864, 14, 2, 64, 151936), 2),
    "80 layers, 70B": (deep(80, 8192, 28672, 64, 8, 128, 128256), 5),
}


@pytest.mark.parametrize("layers", ["unrolled", "scan"])
@pytest.mark.parametrize("name", DEEP)
def test_deep_models_lower_without_memory_and_soon(name, layers):
    """Abstract weights. Processor time: other work on the machine does not count."""
    spec, limit = DEEP[name]
    ir = build(spec, resolve(RuntimeProfile(layers=layers), spec))
    started = time.process_time()
    lowered = lower(ir, Entry("step", 512, 1024))
    assert time.process_time() - started < limit
    assert len(lowered.stablehlo) < 1 << 20


def test_the_module_of_a_loop_does_not_grow_with_layers():
    texts = []
    for layers in (2, 24, 80):
        spec = deep(layers, 896, 4864, 14, 2, 64, 288)
        ir = build(spec, resolve(RuntimeProfile(layers="scan"), spec))
        texts.append(lower(ir, Entry("step", 32, 1024)).stablehlo)
    lines = [len(text.splitlines()) for text in texts]
    assert lines[0] == lines[1] == lines[2]
