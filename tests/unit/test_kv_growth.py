"""A cache that grows: what it holds stays, what it costs is known, and it can fail without harm."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.runtime import pools
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from tests.pretend_engine import expected_sums, greedy_of, pretending
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

IDS = np.random.RandomState(5).randint(0, 288, 8192).astype(np.int32)
LLAMA = TinyModel(Tiny(context=5000, layers=1))
GEMMA = TinyModel(Tiny("gemma3", context=5000, layers=2, period=2, window=40, rope_base=1e6))


@pytest.fixture
def pretended(monkeypatch):
    """Sessions whose model computes next to nothing: these tests are about pages."""
    with pretending(monkeypatch):
        yield


@pytest.mark.parametrize("model", [LLAMA, GEMMA], ids=["llama", "gemma3"])
def test_kv_cache_grows_and_keeps_contents(pretended, model):
    """AC-007-1."""
    log = []
    session = Session(model, RuntimeProfile(page_size=64), ready=[], log=log.append)
    held = 0
    for count, capacity in [(1000, 1024), (24, 1024), (1, 2048), (1023, 2048), (1, 4096), (2048, 5056)]:
        logits = session.step(IDS[held : held + count])
        held += count
        assert (session.cache.held, session.cache.capacity) == (held, capacity)
        assert logits.argmax() == greedy_of(expected_sums(IDS[:held], model.spec.windows)[-1])
    grown = [line for line in log if "the KV cache grew" in line]
    assert [line.split(",")[0].split("grew ")[1] for line in grown] == [
        f"from {old} to {new} positions" for old, new in [(1024, 2048), (2048, 4096), (4096, 5056)]
    ]
    # Every position of the context can be used, and not one more.
    session.step(IDS[held:5000])
    with pytest.raises(InputError, match="1 tokens after the 5000 held are above the context of 5000"):
        session.step(IDS[:1])
    assert (session.cache.held, session.cache.capacity) == (5000, 5056)
    with pytest.raises(ValueError, match="5001 positions are above the context of 5000"):
        session.cache.ensure(5001)


@pytest.mark.parametrize("model", [LLAMA, GEMMA], ids=["llama", "gemma3"])
def test_growing_matches_full_bitwise(model):
    """AC-007-2: through three growths, against a cache that was large from the start."""
    grown = Session(model, ready=[])
    full = Session(model, ready=[], positions=5000)
    capacities = []
    for first in range(0, 4608, 512):
        tokens = IDS[first : first + 512]
        assert np.array_equal(grown.step(tokens), full.step(tokens)), first
        capacities.append(grown.cache.capacity)
        if grown.cache.capacity < full.cache.capacity:
            assert grown.cache.allocated_bytes < full.cache.allocated_bytes
    assert sorted(set(capacities)) == [1024, 2048, 4096, 5120] and full.cache.capacity == 5120


def test_kv_bytes_follow_the_context_in_use():
    """AC-007-3."""
    session = Session(LLAMA, ready=[])
    position = 2 * LLAMA.tiny.kv_heads * LLAMA.tiny.head_size * 4
    assert session.cache.allocated_bytes == session.cache.live_bytes == 0
    session.score(IDS[:500])
    assert session.cache.allocated_bytes == 1024 * position
    assert (session.cache.held, session.cache.live_bytes) == (499, 499 * position)
    session.score(IDS[:1100])
    assert session.cache.allocated_bytes == 2048 * position
    assert session.cache.live_bytes == 1099 * position
    session.reset()
    assert (session.cache.allocated_bytes, session.cache.live_bytes) == (2048 * position, 0)


def test_window_layers_keep_what_their_window_can_reach(pretended):
    session = Session(GEMMA, RuntimeProfile(page_size=64), ready=[])
    position = 2 * GEMMA.tiny.kv_heads * GEMMA.tiny.head_size * 4
    session.step(IDS[:4500])
    assert session.cache.live_bytes == (4500 + 40) * position
    window, full = sorted(session.cache.pages_in_use)
    assert full == -(-4500 // 64)
    assert window <= -(-(512 + 39) // 64) + 1
    # The window's pool does not grow with the context: a sequence and two snapshots.
    before = Session(GEMMA, RuntimeProfile(page_size=64), ready=[])
    before.step(IDS[:2000])
    pools_of = [[pool.shape[0] for pool in s.cache.pools._pages] for s in (before, session)]
    assert pools_of[0][0] == pools_of[1][0] and pools_of[0][1] < pools_of[1][1]


@pytest.mark.parametrize(("page_size", "dtype"), [(64, "f32"), (256, "f32"), (64, "bf16"), (64, "f16")])
def test_cells_of_16_bits_take_half_the_bytes(pretended, page_size, dtype):
    # Pretended pools are of one kind: the sizes are those of the real shapes.
    from synapse_jax.kv.pages import abstract_pages
    from synapse_jax.spec.runtime import resolve

    profile = resolve(RuntimeProfile(page_size=page_size, kv_dtype=dtype), LLAMA.spec)
    (pool,) = abstract_pages(LLAMA.spec, profile, 1024)
    assert pool.shape == (1024 // page_size, page_size, 2, 2, 32)
    assert pool.dtype.itemsize == (4 if dtype == "f32" else 2)


def test_generate_reserves_prompt_and_output_once(pretended):
    """AC-007-4: 3,072 positions for 3,072, and not the 4,096 that doubling ends with."""
    log = []
    session = Session(LLAMA, ready=[], log=log.append)
    session.generate(IDS[:2973], 100, stop_ids=[])
    assert (session.cache.held, session.cache.capacity) == (3072, 3072)
    assert not [line for line in log if "grew" in line]  # nothing was held: nothing was copied
    log.clear()
    session.generate(IDS[:3100], 1, reuse=True)
    session.generate(IDS[:3973], 100, stop_ids=[], reuse=True)
    assert (session.cache.held, session.cache.capacity) == (4072, 4096)
    assert len([line for line in log if "grew" in line]) == 0
    # A sequence whose end is not known at least doubles.
    session = Session(LLAMA, ready=[])
    for first in range(0, 3072, 512):
        session.step(IDS[first : first + 512])
    assert (session.cache.held, session.cache.capacity) == (3072, 4096)


def test_known_requests_that_share_a_prefix_grow_with_its_contents(pretended):
    log = []
    session = Session(LLAMA, ready=[], log=log.append)
    session.generate(IDS[:900], 1, reuse=True)
    reused = session.generate(IDS[:3000], 1, reuse=True)
    assert (reused.reused_tokens, session.cache.capacity) == (900, 3072)
    assert [line for line in log if "from 1024 to 3072 positions" in line]
    assert reused.token_ids[0] == greedy_of(expected_sums(IDS[:3000], (0,))[-1])


@pytest.mark.parametrize("context", [100, 1000, 1023, 1025, 1500, 4097])
def test_a_cache_is_never_above_the_context_rounded_up_to_a_page(pretended, context):
    session = Session(TinyModel(Tiny(context=context, layers=1)), RuntimeProfile(page_size=64), ready=[])
    for first in range(0, context, 300):
        session.step(IDS[first : min(first + 300, context)])
        assert session.cache.capacity <= -(-context // 64) * 64
    assert session.cache.held == context
    session.generate(IDS[:context], 1)
    assert session.cache.capacity == -(-context // 64) * 64


@pytest.mark.parametrize("model", [LLAMA, GEMMA], ids=["llama", "gemma3"])
def test_growth_without_memory_leaves_the_old_cache_valid_and_names_the_sizes(model, monkeypatch):
    """Case 43, with the real pages: what was held goes on as if nothing had been asked."""
    session = Session(model, ready=[])
    session.step(IDS[:512])
    allocated = session.cache.allocated_bytes
    with monkeypatch.context() as patch:
        patch.setattr(pools, "available_bytes", lambda device: 300_000)
        message = (
            r"the KV cache cannot grow from 1024 to 2048 positions beside the \S+ MB that it has: "
            r"\S+ MB needed, 0.3 MB available"
        )
        with pytest.raises(RunError, match=message):
            session.step(IDS[512:1100])

    def refuse(*args):
        raise MemoryError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(pools, "grow_pages", refuse)
        with pytest.raises(RunError, match=r"cannot grow from 1024 to 2048 positions.* MB: not today"):
            session.step(IDS[512:1100])
    with monkeypatch.context() as patch:
        patch.setattr(pools, "grow_pages", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.step(IDS[512:1100])
    assert (session.cache.held, session.cache.capacity) == (512, 1024)
    assert session.cache.allocated_bytes == allocated
    full = Session(model, ready=[])
    full.step(IDS[:512])
    assert np.array_equal(session.step(IDS[512:1024]), full.step(IDS[512:1024]))


def test_a_request_that_finds_no_memory_does_not_spoil_smaller_ones(pretended, monkeypatch):
    session = Session(LLAMA, ready=[])
    session.score(IDS[:50])
    monkeypatch.setattr(pools, "available_bytes", lambda device: 1024 * 512)
    with pytest.raises(RunError, match=r"no room for a KV cache of 2048 positions: 1.0 MB needed, 0.5 MB"):
        session.score(IDS[:2000])
    assert (session.cache.capacity, session.cache.held, session.cache.allocated_bytes) == (1024, 0, 0)
    session.score(IDS[:50])
    with pytest.raises(RunError, match="no room for a KV cache of 3072 positions"):
        session.generate(IDS[:2500], 1)
    assert session.generate(IDS[:50], 1).token_ids[0] == greedy_of(expected_sums(IDS[:50], (0,))[-1])
