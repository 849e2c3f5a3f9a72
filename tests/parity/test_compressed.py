"""Windows and compressed attention in whole models: against float64, in any steps, in a small cache."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.graph.fingerprint import explain, profile_identity
from synapse_jax.graph.sequences import angles, sequence_function
from synapse_jax.ir.build import build
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.float64_forward import float64_logits
from tests.tiny import Tiny, TinyRope
from tests.tiny_model import TinyModel

PAGE = 32
TINIES = {
    "llama": Tiny(context=512, layers=1),
    "yarn": Tiny(context=512, layers=1, rope=TinyRope("yarn", factor=4.0, original=128)),
    # The first layer slides by the model's own mask; only the second one follows the policy.
    "gemma3": Tiny("gemma3", context=512, layers=2, period=2, window=24, rope_base=1e6),
}
MODELS = {name: TinyModel(tiny) for name, tiny in TINIES.items()}
IDS = np.random.RandomState(7).randint(0, 288, 200).astype(np.int32)
WINDOW, SMALL, COVERING = "window:40", "compressed:window=40,block=4", "compressed:window=512,block=4"


@pytest.fixture(scope="module")
def session_of():
    """Sessions by model, attention and KV dtype; each compiles once."""

    @functools.cache
    def session(name: str, attention: str = "dense", kv_dtype: str = "f32") -> Session:
        profile = RuntimeProfile(page_size=PAGE, attention=attention, kv_dtype=kv_dtype)
        return Session(MODELS[name], profile, ready=[])

    yield session
    session.cache_clear()


def differences(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference of logits, in units of the largest logit."""
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("attention", "policy"), [(WINDOW, (40, 0)), (SMALL, (40, 4)), ("compressed:window=7,block=5", (7, 5))]
)
def test_logits_are_those_of_float64(session_of, name, attention, policy):
    expected = float64_logits(TINIES[name], IDS, window=policy[0], block=policy[1])
    assert differences(session_of(name, attention).logits(IDS), expected) < 1e-5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attention", ["dense", WINDOW, SMALL])
def test_steps_over_a_cache_equal_the_whole_sequence_at_every_position(session_of, name, attention):
    session = session_of(name, attention)
    whole = jax.jit(sequence_function(session.ir))
    logits = whole(session._runner.params, IDS[None], angles(session.ir, len(IDS)))[0]
    assert differences(session.logits(IDS), np.asarray(logits)) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_steps_of_any_size_have_the_same_bits_and_single_rows_agree(session_of, name):
    session = session_of(name, SMALL)
    expected = session.score(IDS)
    for rows in (7, 32, 512):
        again = session.score(IDS, rows=rows)
        assert (again.nll == expected.nll).all() and (again.greedy == expected.greedy).all()
    np.testing.assert_allclose(session.score(IDS, rows=1).nll, expected.nll, atol=1e-4)


def test_steps_by_hand_go_on_where_the_last_one_ended(session_of):
    session = session_of("llama", SMALL)
    expected = session.logits(IDS, [58, 59, 130, 199])
    session.reset()
    for row, (start, stop) in enumerate([(0, 59), (59, 60), (60, 131), (131, 200)]):
        np.testing.assert_array_equal(session.step(IDS[start:stop]), expected[row])


def test_a_window_that_covers_everything_is_dense_to_the_bit(session_of):
    for name in MODELS:
        dense = session_of(name).logits(IDS)
        for attention in ("window:512", COVERING):
            np.testing.assert_array_equal(session_of(name, attention).logits(IDS), dense)
        assert differences(session_of(name, SMALL).logits(IDS), dense) > 1e-3


def test_blocks_of_one_key_are_dense(session_of):
    for window in (1, 40):
        logits = session_of("llama", f"compressed:window={window},block=1").logits(IDS)
        assert differences(logits, session_of("llama").logits(IDS)) < 1e-5


def test_greedy_text_is_that_of_scoring(session_of):
    """Decoding through calls that cross the ends of pages; then every new token is the most likely one."""
    session = session_of("llama", SMALL)
    new = session.generate(IDS[:50], 90, stop_ids=()).token_ids
    assert len(new) == 90
    greedy = session.score(np.array([*IDS[:50], *new], np.int32), 50, rows=1).greedy
    assert tuple(greedy.tolist()) == new


def test_growing_changes_no_bit(session_of):
    """From the first rung to one that is larger, with blocks that are filling."""
    model = TinyModel(Tiny(context=4096, layers=1))
    ids = np.random.RandomState(3).randint(0, 288, 1500).astype(np.int32)
    profile = RuntimeProfile(page_size=64, attention=SMALL)
    grown, full = (Session(model, profile, ready=[], positions=positions) for positions in (1, 1500))
    steps = [grown.step(ids[:1000]), grown.step(ids[1000:1100]), grown.step(ids[1100:])]
    assert full.cache.capacity == grown.cache.capacity > 1024
    np.testing.assert_array_equal(np.stack(steps), full.logits(ids, [999, 1099, 1499]))


@pytest.mark.parametrize("kv_dtype", ["bf16", "f16"])
def test_cells_of_any_type(session_of, kv_dtype):
    exact = session_of("llama", SMALL).score(IDS).nll
    nll = session_of("llama", SMALL, kv_dtype).score(IDS).nll
    assert np.abs(nll - exact).mean() < {"bf16": 0.1, "f16": 0.01}[kv_dtype]


def test_a_prefix_is_reused_where_it_ended_and_nowhere_else(session_of):
    session, other = session_of("llama", SMALL), IDS[::-1].copy()
    cold = session.score(IDS).nll
    session.score(IDS[:100], reuse=True)
    warm = session.score(IDS, reuse=True)
    np.testing.assert_array_equal(warm.nll, cold)
    assert warm.reused_tokens == 99
    prompt = session.generate(IDS[:101], 1, reuse=True)
    longer = session.generate(IDS[:150], 1, reuse=True)
    assert (prompt.finish_reason, longer.reused_tokens) == ("length", 101)
    assert longer.token_ids == session.generate(IDS[:150], 1).token_ids
    session.generate(IDS[:150], 1, reuse=True)
    shorter = session.generate(IDS[:120], 1, reuse=True)
    assert shorter.reused_tokens == 0
    assert shorter.reuse_note == (
        "119 tokens are common, but compressed attention goes on only where it ended (at 150)"
    )
    assert shorter.token_ids == session.generate(IDS[:120], 1).token_ids
    session.generate(other[:10], 1, reuse=True)
    np.testing.assert_array_equal(session.score(IDS).nll, cold)


def test_a_step_that_is_cut_off_leaves_nothing_to_go_on_from(session_of, monkeypatch):
    """Sums of blocks have moved on when a step was interrupted: going on there would add keys twice."""
    session = session_of("llama", SMALL)
    expected = session.generate(IDS[:150], 1).token_ids
    session.generate(IDS[:101], 1, reuse=True)
    run = session.cache.run

    def interrupted(step):
        run(step)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session.cache, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.generate(IDS[:150], 1, reuse=True)
    assert session.cache.held == 0
    again = session.generate(IDS[:150], 1, reuse=True)
    assert (again.reused_tokens, again.token_ids) == (0, expected)
    logits = session.logits(IDS, [149])[0]
    session.reset()
    assert session.cache.live_bytes == 0
    session.step(IDS[:100])
    with monkeypatch.context() as patch:
        patch.setattr(session.cache, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.step(IDS[100:150])
    assert session.cache.held == 0
    np.testing.assert_array_equal(session.step(IDS[:150]), logits)


def test_the_cache_shrinks_to_the_bytes_of_requirements():
    """4,096 positions, window 256, 1 KiB a position in 16 bit: 1.1875 MiB with blocks of 4, 0.71875 of 8."""
    tiny = Tiny(context=4096, layers=4, query_heads=4, kv_heads=1, head_size=64)
    model, kib = TinyModel(tiny), 1024
    ids = np.random.RandomState(5).randint(0, 288, 4096).astype(np.int32)
    for block, mebibytes in ((4, 1.1875), (8, 0.71875)):
        attention = f"compressed:window=256,block={block}"
        session = Session(
            model, RuntimeProfile(attention=attention, kv_dtype="f16"), ready=[], positions=4096
        )
        session.step(ids)
        sums = 4 * 2 * 64 * 4
        assert session.cache.live_bytes == (256 + 3840 // block) * kib + sums == mebibytes * kib**2 + sums
        # Two pools a layer, each at most one page of 256 cells above.
        assert session.cache.live_bytes <= session.cache.allocated_bytes
        assert session.cache.allocated_bytes <= session.cache.live_bytes + 2 * 256 * kib
    dense = Session(model, RuntimeProfile(kv_dtype="f16"), ready=[], positions=4096)
    dense.step(ids)
    assert dense.cache.live_bytes == 4096 * kib


def test_identities_name_the_policy_and_endings_are_refused(session_of):
    spec = MODELS["llama"].spec
    compressed = ("compressed:window=64,block=4", "compressed:window=64,block=8")
    identities = [
        profile_identity(build(spec, resolve(RuntimeProfile(attention=attention), spec)))
        for attention in ("dense", "window:64", "window:65", *compressed)
    ]
    assert len({identity.digest for identity in identities}) == len(identities)
    assert explain(*identities[3:]) == ["ir", "attention"]
    with pytest.raises(InputError, match="has no endings of one prompt"):
        session_of("llama", SMALL).score_continuations(IDS[:9], [IDS[:2]])
    only_windows = TinyModel(Tiny("gemma3", context=64, layers=2, period=3, window=8)).spec
    for attention in (WINDOW, SMALL):
        with pytest.raises(InputError, match="a layer that sees all keys is needed"):
            resolve(RuntimeProfile(attention=attention), only_windows)


def test_a_model_that_was_trained_with_a_policy_has_it_by_default():
    import dataclasses

    spec = dataclasses.replace(MODELS["llama"].spec, attention=SMALL)
    assert resolve(RuntimeProfile(), spec).attention == SMALL
    assert resolve(RuntimeProfile(attention=SMALL), spec).attention == SMALL
    with pytest.raises(InputError, match=r"window:40 contradicts the file: .* compressed:window=40,block=4"):
        resolve(RuntimeProfile(attention=WINDOW), spec)


def test_memory_for_growth_is_asked_for_first(session_of, monkeypatch):
    session = Session(MODELS["llama"], RuntimeProfile(page_size=PAGE, attention=SMALL), ready=[])
    expected = session.logits(IDS, [99])
    monkeypatch.setattr("synapse_jax.runtime.pools.available_bytes", lambda device: 0)
    session.cache.drop()
    with pytest.raises(RunError, match="there is no room"):
        session.logits(IDS, [99])
    monkeypatch.undo()
    np.testing.assert_array_equal(session.logits(IDS, [99]), expected)
