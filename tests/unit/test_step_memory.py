"""No second cache: what a call needs beside its arguments is small, in every entry and KV dtype."""

from __future__ import annotations

import jax
import pytest

from synapse_jax.graph import moves
from synapse_jax.graph.compile import lower_on
from synapse_jax.graph.entry import Entry
from synapse_jax.ir.build import build
from synapse_jax.kv.pages import abstract_pages
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.tiny import Tiny
from tests.tiny_model import tiny_spec

CAPACITY = 1 << 18
"""So large that a copy of one layer's pool would dwarf all else. Nothing of it is allocated."""
ENTRIES = [
    Entry("step", 512, CAPACITY),
    Entry("step", 512, CAPACITY, sequences=16),
    Entry("logits", 32, CAPACITY),
    Entry("decode", 1, CAPACITY),
    Entry("sample", 1, CAPACITY),
]
POOLS = [("f32", 2), ("bf16", 2), ("f16", 2), ("f32", 1), ("bf16", 1)]
"""KV dtypes and heads; one head is an axis that layouts may ignore."""


def graph(kv_dtype, attention="dense", kv_heads=2):
    spec = tiny_spec(Tiny(context=CAPACITY, layers=1, kv_heads=kv_heads))
    return build(spec, resolve(RuntimeProfile(kv_dtype=kv_dtype, attention=attention), spec))


def pool_bytes(ir):
    return [pool.size * pool.dtype.itemsize for pool in abstract_pages(ir.spec, ir.profile, CAPACITY)]


@pytest.mark.parametrize(("kv_dtype", "kv_heads"), POOLS)
def test_no_entry_makes_a_second_cache(kv_dtype, kv_heads):
    ir = graph(kv_dtype, kv_heads=kv_heads)
    assert min(pool_bytes(ir)) >= kv_heads * (32 << 20)
    for entry in ENTRIES:
        memory = lower_on(ir, entry, jax.devices("cpu")[0]).lowered.compile().memory_analysis()
        assert memory.temp_size_in_bytes < min(pool_bytes(ir)) / 4, entry
        assert memory.alias_size_in_bytes >= sum(pool_bytes(ir)), entry  # the pages are updated in place


@pytest.mark.parametrize(("kv_dtype", "kv_heads"), POOLS)
def test_bounds_of_keys_are_read_from_the_pages_that_hold_them(kv_dtype, kv_heads):
    """A row that is written and then read, or read in another shape, would be a copy of the pool."""
    ir = graph(kv_dtype, "pages:budget=1024,window=64,page=64", kv_heads)
    pool, bounds = pool_bytes(ir)
    for entry in (Entry("step", 512, CAPACITY), Entry("decode", 1, CAPACITY)):
        memory = lower_on(ir, entry, jax.devices("cpu")[0]).lowered.compile().memory_analysis()
        assert memory.temp_size_in_bytes < pool / 4, entry
        assert memory.alias_size_in_bytes >= pool + bounds, entry


@pytest.mark.parametrize("kv_dtype", ["f32", "bf16", "f16"])
def test_copying_pages_makes_no_second_cache(kv_dtype):
    ir = graph(kv_dtype)
    pages = abstract_pages(ir.spec, ir.profile, CAPACITY)
    memory = moves._copy(pages[0], jax.devices("cpu")[0]).memory_analysis()
    assert memory.temp_size_in_bytes < min(pool_bytes(ir)) / 8
    assert memory.alias_size_in_bytes >= sum(pool_bytes(ir))
