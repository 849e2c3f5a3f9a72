"""Bitwise promises: dense = paged, any step = any other, neighbours and page order change nothing."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.graph.entry import Entry
from synapse_jax.graph.lower import entry_function
from synapse_jax.ir.build import build
from synapse_jax.kv.kinds import cache_kinds
from synapse_jax.kv.pages import abstract_pages
from synapse_jax.kv.sequence import PagedSequence
from synapse_jax.runtime import packing
from synapse_jax.runtime.params import load_params
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.compiled import compiled
from tests.contiguous import contiguous_attention, contiguous_cache
from tests.paging import ShuffledAllocator, new_sequence
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

TINIES = {
    "llama": Tiny(context=1024),
    "llama-mha-partial-rotary": Tiny(
        context=1024, query_heads=3, kv_heads=3, head_size=48, rotary_size=32, tied=False
    ),
    "qwen2": Tiny("qwen2", context=1024),
    # Windows above and below a page, not multiples of it; of gemma3's layers the third sees all keys.
    "mistral": Tiny(context=1024, window=300),
    "gemma3": Tiny("gemma3", context=1024, layers=3, period=3, window=40, rope_base=1e6),
}
WINDOWS = ("mistral", "gemma3")
IDS = np.random.RandomState(3).randint(0, 288, 1024).astype(np.int32)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", TINIES)
def test_steps_of_any_size_give_the_same_bits(name, precision):
    session = Session(TinyModel(TINIES[name]), RuntimeProfile(precision=precision), ready=[])
    whole = session.score(IDS[:700], rows=512)
    for rows in (32, 64, 128, 256, 100, 7):
        steps = session.score(IDS[:700], rows=rows)
        assert np.array_equal(steps.nll, whole.nll), rows
        assert np.array_equal(steps.greedy, whole.greedy), rows


@pytest.mark.parametrize("name", WINDOWS)
def test_one_row_steps_see_the_same_window(name):
    session = Session(TinyModel(TINIES[name]), RuntimeProfile(page_size=64), ready=[])
    whole, one = session.score(IDS[:400], rows=512), session.score(IDS[:400], rows=1)
    assert np.abs(one.nll - whole.nll).max() <= 1e-4
    assert np.array_equal(one.greedy, whole.greedy)
    # Tokens that were decoded are those that one step over all of them prefers.
    made = list(session.generate(IDS[:330], 12, stop_ids=[]).token_ids)
    assert session.score([*IDS[:330], *made], 330, rows=512).greedy.tolist() == made


@pytest.mark.parametrize("page_size", [64, 256])
@pytest.mark.parametrize("name", TINIES)
def test_pages_equal_the_contiguous_reference(name, page_size):
    """Fragmented pages, steps that cross them, poison in every page that is not the sequence's."""
    model = TinyModel(TINIES[name])
    ir = build(model.spec, resolve(RuntimeProfile(page_size=page_size), model.spec))
    params = load_params(ir, model, compiled.device)
    entry = Entry("logits", 128, 2 * 1024)
    pool = tuple(jnp.full(a.shape, 1e9, a.dtype) for a in abstract_pages(ir.spec, ir.profile, entry.capacity))
    sequence = new_sequence(ir, entry.capacity, ShuffledAllocator)
    cache = contiguous_cache(ir, 1024)
    paged = compiled(entry_function(ir, entry))
    reference = compiled(entry_function(ir, entry, contiguous_attention(page_size)))
    for first in range(0, 700, 100):
        sequence.slide(first)
        sequence.extend(first, 100)
        segment = packing.Segment(IDS[first : first + 100], first, sequence.tables)
        rows = packing.pack_rows(entry, ir, [segment])
        logits, pool = paged(params, pool, rows)
        expected, cache = reference(params, cache, rows)
        assert np.array_equal(logits[:100], expected[:100]), first


def test_neighbours_in_a_step_change_no_bit():
    """Two sequences packed into one step equal each alone."""
    model = TinyModel()
    ir = build(model.spec, resolve(RuntimeProfile(page_size=16), model.spec))
    params = load_params(ir, model, compiled.device)

    def run(segments, sequences):
        entry = Entry("logits", 64, 256, sequences)
        pages = tuple(jnp.zeros(a.shape, a.dtype) for a in abstract_pages(ir.spec, ir.profile, 256))
        logits, _ = compiled(entry_function(ir, entry))(params, pages, packing.pack_rows(entry, ir, segments))
        return np.asarray(logits)

    allocator = ShuffledAllocator(16)

    def segment(tokens):
        sequence = PagedSequence.empty(cache_kinds(ir.spec, ir.profile), [allocator], 16)
        sequence.extend(0, len(tokens))
        return packing.Segment(tokens, 0, sequence.tables)

    a, b = segment(IDS[:20]), segment(IDS[100:140])
    both = run([a, b], 2)
    assert np.array_equal(both[:20], run([a], 1)[:20])
    assert np.array_equal(both[20:60], run([b], 1)[:40])
    assert np.isfinite(both).all()


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_score_matches_independent_prefills(precision):
    """Each position's NLL and greedy token equal those of a prompt that ends just before it."""
    session = Session(TinyModel(TINIES["llama"]), RuntimeProfile(precision=precision), ready=[])
    for rows in (512, 32):
        scores = session.score(IDS[:300], rows=rows)
        for position in (1, 31, 32, 33, 255, 256, 257, 299):
            prefix = session.score(IDS[: position + 1], position, rows=512)
            assert scores.nll[position - 1] == prefix.nll[0]
            assert scores.greedy[position - 1] == prefix.greedy[0]
            assert session.generate(IDS[:position], 1, stop_ids=[]).token_ids[0] == prefix.greedy[0]
