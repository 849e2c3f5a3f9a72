"""Sessions: ranges, refusals, growth, few compilations, life after a failure."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.graph.compile import GRAPHS
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

LONG = Tiny(context=3000)
IDS = np.random.RandomState(1).randint(0, 288, 3000)


@pytest.fixture(scope="module")
def session():
    return Session(TinyModel(LONG), ready=[])


def log_softmax(logits):
    x = np.asarray(logits, np.float64)
    return x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))


def test_scores_are_log_softmax_of_logits(session):
    ids = IDS[:70]
    scores = session.score(ids, 30)
    logits = session.logits(ids)
    expected = -log_softmax(logits)[np.arange(29, 69), ids[30:70]]
    assert np.abs(scores.nll - expected).max() < 1e-5
    assert np.array_equal(scores.greedy, logits[29:69].argmax(-1))
    assert np.array_equal(session.logits(ids, [69, 5]), logits[[69, 5]])


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (5, 5), (6, 5), (1, 11), (-1, None), (10, None)])
def test_score_ranges_are_checked(session, start, stop):
    with pytest.raises(InputError, match="is not 1 ≤ start < stop ≤ 10"):
        session.score(IDS[:10], start, stop)


def test_bad_tokens_and_rows_are_refused(session):
    for ids, message in [
        ([], "at least one integer"),
        ([[1, 2]], "at least one integer"),
        ([1.0, 2.0], "at least one integer"),
        ([1, 288], "288"),
        ([1, -1], "-1"),
        ([1] * 3001, "3001 tokens are above the context of 3000"),
    ]:
        for work in (session.score, session.logits, session.generate):
            with pytest.raises(InputError, match=message):
                work(ids)
    for rows in (0, 513, -1):
        with pytest.raises(InputError, match=f"scoring rows {rows} are not from 1 to 512"):
            session.score(IDS[:10], rows=rows)
    with pytest.raises(InputError, match="are not positions of 10 tokens"):
        session.logits(IDS[:10], [10])
    with pytest.raises(InputError, match="list of at least one integer"):
        session.logits(IDS[:10], [0.9])
    with pytest.raises(InputError, match="33 stop tokens are above the 32"):
        session.generate(IDS[:10], stop_ids=range(33))
    with pytest.raises(InputError, match="max_new_tokens -1"):
        session.generate(IDS[:10], -1)


def test_the_context_is_usable_to_the_last_position(session):
    assert len(session.generate(IDS[:2999], 2).token_ids) == 2
    assert len(session.generate(IDS, 1).token_ids) == 1
    assert session.generate(IDS, 0).token_ids == ()
    with pytest.raises(
        InputError, match="3000 tokens and 2 new ones need 3001 positions, the context has 3000"
    ):
        session.generate(IDS, 2)
    assert len(session.score(IDS).nll) == 2999


def test_generation_is_greedy(session):
    """Each new token is the most likely one after all before it, across device calls."""
    new = session.generate(IDS[:20], 40).token_ids
    ids = np.concatenate([IDS[:20], new])
    logits = session.logits(ids)[19:-1]
    top = np.sort(logits, -1)
    decided = top[:, -1] - top[:, -2] > 1e-3
    assert decided.sum() >= 35
    assert np.array_equal(np.array(new)[decided], logits.argmax(-1)[decided])


def test_several_tokens_come_from_one_device_call(session, monkeypatch):
    calls = []
    run = type(session.cache).run
    monkeypatch.setattr(
        type(session.cache), "run", lambda cache, step: (calls.append(1), run(cache, step))[1]
    )
    session.generate(IDS[:20], 49)
    assert len(calls) == 1 + 3  # the prompt and its token, then 16 tokens a call


def test_generation_stops_at_any_stop_token(session):
    new = session.generate(IDS[:20], 40).token_ids
    first = new.index(new[25])
    stopped = session.generate(IDS[:20], 40, stop_ids=[287, new[25]])
    assert stopped.token_ids == new[:first] and stopped.finish_reason == "stop"
    at_once = session.generate(IDS[:20], 40, stop_ids=[new[0]])
    assert at_once.token_ids == () and at_once.finish_reason == "stop"
    assert session.generate(IDS[:20], 40, stop_ids=[]).finish_reason == "length"


def test_prompts_around_a_page_and_a_capacity_rung(session):
    """Case 7: nothing is overwritten at the edge of a page or of the pool."""
    fresh = Session(TinyModel(LONG), ready=[])
    for length in [254, 255, 256, 257, 258, 1022, 1023, 1024, 1025, 1026]:
        grown = session.score(IDS[:length], rows=64)
        whole = fresh.score(IDS[:length], rows=512)
        assert np.array_equal(grown.nll, whole.nll), length
    assert session.cache.capacity == 3000 // 256 * 256 + 256


def test_few_shapes_are_compiled_and_a_second_run_compiles_none():
    """Case 37: lengths 1 … 300, decoding, reuse, endings and three growths, counted by jax itself."""
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: (
            compiled.append(name) if name.endswith("backend_compile_duration") else None
        )
    )
    model = TinyModel(Tiny(context=4500, seed=5, vocab=300, layers=1))
    before = GRAPHS.compilations

    def run():
        session = Session(model, RuntimeProfile(page_size=128))
        for length in [*range(1, 40, 3), 64, 65, 100, 255, 256, 257, 300]:
            session.score(IDS[: length + 1])
            session.generate(IDS[:length], 1, reuse=True)
            session.generate(IDS[:length], 20, reuse=True)
            session.score_continuations(IDS[:length], [IDS[:3], IDS[:40]], reuse=True)
        session.reset()
        for capacity in (1024, 2048, 4096, 4608):
            tokens = min(capacity, 4500) - session.cache.held
            for first in range(0, tokens, 500):
                session.step(IDS[first : min(first + 500, tokens)])
            assert session.cache.capacity == capacity
        return session

    session = run()
    # Three at load and one of many sequences; then the two sizes of steps a growth; the last needs only one.
    session._runner.entries.wait()
    graphs = GRAPHS.compilations - before
    assert len(session.compiled_entries) == 4 + 2 + 2 + 1
    # The copy of pages and three growths; two more entries may have been compiled ahead at each.
    assert graphs <= 9 + 1 + 3 + 2 * 3
    # Beside those: weights and new pages.
    assert len(compiled) <= graphs + 2
    compiled.clear()
    run()._runner.entries.wait()
    assert GRAPHS.compilations - before == graphs and compiled == []


def test_a_compiled_graph_refuses_another_shape(session):
    session.score(IDS[:10])
    entry = session.compiled_entries[0]
    with pytest.raises(TypeError):
        entry(session._runner.params, (), None)


def test_a_failed_step_leaves_the_session_usable_and_honest(session, monkeypatch):
    expected = session.score(IDS[:600], rows=64)
    calls = 0
    run = type(session.cache).run

    def failing(cache, step):
        nonlocal calls
        calls += 1
        if calls == 4:

            def broken(pages):
                step(pages)
                raise KeyboardInterrupt

            return run(cache, broken)
        return run(cache, step)

    monkeypatch.setattr(type(session.cache), "run", failing)
    with pytest.raises(KeyboardInterrupt):
        session.score(IDS[:600], rows=64)
    assert session.cache.held == session.cache.allocated_bytes == 0
    assert np.array_equal(session.score(IDS[:600], rows=64).nll, expected.nll)
    assert session.cache.held == 599


def test_numbers_that_are_not_finite_stop_the_run_and_leave_no_trace():
    """One token's embedding is NaN: texts that hold it fail, later ones do not read its keys."""
    model = TinyModel(Tiny(tied=False))
    model.weights["embed"][7] = np.nan
    session = Session(model, ready=[])
    good = session.score([11] * 8)
    with pytest.raises(
        RunError, match=r"the NLL at position \d+ is nan, in the step that ends at position 24"
    ):
        session.score([11] * 20 + [7] * 5)
    assert session.cache.held == session.cache.allocated_bytes == 0
    assert np.array_equal(session.score([11] * 8).nll, good.nll)
    with pytest.raises(RunError, match="position 21 is nan"):
        session.generate([11] * 20 + [7], 5)
    with pytest.raises(RunError, match="position 21 is nan"):
        session.logits([11] * 20 + [7], [3, 20])
    assert np.array_equal(session.score([11] * 8).nll, good.nll)
