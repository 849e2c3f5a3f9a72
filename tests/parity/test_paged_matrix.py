"""Pages change no bit (case 24): KV dtype × page order × step size × prompt length × model family.

The reference is one step over the whole prompt on a contiguous cache. Steps and prompts end just before, at
and just after the edges of a page. Few row counts are compiled, since that is what costs time: the others are
compared in test_bitwise.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.graph.entry import Entry
from synapse_jax.graph.lower import entry_function
from synapse_jax.ir.build import build
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.pages import abstract_pages, to_cells
from synapse_jax.runtime import packing
from synapse_jax.runtime.params import load_params
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.compiled import compiled
from tests.contiguous import contiguous_attention, contiguous_cache
from tests.paging import ShuffledAllocator, new_sequence
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

PAGE, CAPACITY = 32, 256
STEPS = (PAGE - 1, PAGE, PAGE + 1)
LENGTHS = (1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1, 3 * PAGE + 5)
WHOLE = 128
"""Rows that hold the longest prompt."""
TINIES = {
    "llama": Tiny(context=CAPACITY, layers=1),
    "qwen3": Tiny("qwen3", context=CAPACITY, layers=1),
    # The window is above a page and not a multiple of it; the second layer sees all keys.
    "gemma3": Tiny("gemma3", context=CAPACITY, layers=2, period=2, window=40, rope_base=1e6),
}
POISON = {"f32": 1e9, "bf16": 1e9, "f16": 6e4}
IDS = np.random.RandomState(7).randint(0, 288, max(LENGTHS)).astype(np.int32)


class Engine(NamedTuple):
    """A model with its weights, and what is compiled of it."""

    ir: ModelIR
    params: dict[str, Any]
    paged: Any
    """Rows → the logits entry over pages."""
    reference: Any
    """The logits entry of `WHOLE` rows over a contiguous cache."""


@pytest.fixture(scope="module")
def engine_of():
    """Engines by model and KV dtype: each shape compiles once for the whole matrix."""

    @functools.cache
    def engine(name: str, kv_dtype: str) -> Engine:
        model = TinyModel(TINIES[name])
        ir = build(model.spec, resolve(RuntimeProfile(page_size=PAGE, kv_dtype=kv_dtype), model.spec))
        whole = Entry("logits", WHOLE, CAPACITY)
        return Engine(
            ir,
            load_params(ir, model, compiled.device),
            functools.cache(lambda rows: compiled(entry_function(ir, Entry("logits", rows, CAPACITY)))),
            compiled(entry_function(ir, whole, contiguous_attention(PAGE))),
        )

    yield engine
    engine.cache_clear()


def contiguous_logits(engine: Engine, length: int) -> np.ndarray:
    """Logits of a prompt from one step over all of it, without pages."""
    sequence = new_sequence(engine.ir, CAPACITY)  # only positions matter here; the pages go unused
    sequence.extend(0, length)
    segment = packing.Segment(IDS[:length], 0, sequence.tables)
    rows = packing.pack_rows(Entry("logits", WHOLE, CAPACITY), engine.ir, [segment])
    return np.asarray(engine.reference(engine.params, contiguous_cache(engine.ir, CAPACITY), rows)[0])[
        :length
    ]


def paged_logits(
    engine: Engine, length: int, step: int, allocator: type[PageAllocator], poison: float
) -> np.ndarray:
    """Logits of a prompt in steps over pages, with poison in every cell that nobody wrote."""
    ir = engine.ir
    shapes = abstract_pages(ir.spec, ir.profile, CAPACITY)
    pool = tuple(to_cells(jnp.full(a.shape, poison, jnp.float32), a.dtype) for a in shapes)
    sequence = new_sequence(ir, CAPACITY, allocator)
    entry_rows = 32 if step <= 32 and ir.profile.kv_dtype == "f32" else WHOLE
    out = []
    for first in range(0, length, step):
        tokens = IDS[first : min(first + step, length)]
        sequence.slide(first)
        sequence.extend(first, len(tokens))
        segment = packing.Segment(tokens, first, sequence.tables)
        rows = packing.pack_rows(Entry("logits", entry_rows, CAPACITY), ir, [segment])
        logits, pool = engine.paged(entry_rows)(engine.params, pool, rows)
        out.append(np.asarray(logits)[: len(tokens)])
    return np.concatenate(out)


@pytest.mark.parametrize("allocator", [PageAllocator, ShuffledAllocator], ids=["fresh", "fragmented"])
@pytest.mark.parametrize("kv_dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", TINIES)
def test_pages_and_steps_change_no_bit(engine_of, name, kv_dtype, allocator):
    engine = engine_of(name, kv_dtype)
    for length in LENGTHS:
        expected = contiguous_logits(engine, length)
        assert np.isfinite(expected).all()
        for step in (*STEPS, WHOLE):
            logits = paged_logits(engine, length, step, allocator, POISON[kv_dtype])
            assert np.array_equal(logits, expected), (length, step)


@pytest.mark.parametrize("name", TINIES)
def test_kv_dtypes_are_close_and_not_the_same(engine_of, name):
    """The matrix above compares each dtype with itself: here they are compared with each other."""
    logits = {dtype: contiguous_logits(engine_of(name, dtype), LENGTHS[-1]) for dtype in POISON}
    differences = {dtype: np.abs(logits[dtype] - logits["f32"]).max() for dtype in ("f16", "bf16")}
    assert 0 < differences["f16"] < differences["bf16"] < 1
