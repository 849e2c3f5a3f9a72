"""Which entries a session compiles, and when: at load, ahead of growth, or late."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from synapse_jax.graph.compile import GRAPHS
from synapse_jax.runtime.entries import GUARD, LateCompileError, late_compiles_raise
from synapse_jax.runtime.plan import generation_entries
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from synapse_jax.spec.sampling import GREEDY
from tests.pretend_engine import pretending
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

IDS = np.random.RandomState(6).randint(0, 288, 4096).astype(np.int32)
MODEL = TinyModel(Tiny(context=4096, layers=1))


@pytest.fixture
def pretended(monkeypatch):
    with pretending(monkeypatch):
        yield


def test_an_entry_that_was_not_announced_raises_under_the_guard(pretended, monkeypatch):
    session = Session(MODEL, ready=[("step", 32)])
    with late_compiles_raise():
        session.score(IDS[:30])
        with pytest.raises(LateCompileError, match="step rows=512 capacity=1024 was not announced"):
            session.score(IDS[:500])
    monkeypatch.setenv(GUARD, "raise")
    with pytest.raises(LateCompileError, match="decode rows=1"):
        session.generate(IDS[:9], 3)
    monkeypatch.delenv(GUARD)
    session.score(IDS[:500])
    # What has been compiled late is announced from then on.
    with late_compiles_raise():
        session.score(IDS[:1500])
    assert session.cache.capacity == 2048


def test_weights_are_read_while_entries_compile(monkeypatch):
    reading, compile_entry = threading.Event(), GRAPHS.compile

    def compile_late(*arguments):
        assert reading.wait(timeout=60), "nothing was read before the entries had compiled"
        return compile_entry(*arguments)

    class Watched(TinyModel):
        def read_weight(self, name):
            reading.set()
            return super().read_weight(name)

    monkeypatch.setattr(GRAPHS, "compile", compile_late)
    session = Session(Watched(MODEL.tiny), ready=[("step", 32)])
    assert [entry.entry.rows for entry in session.compiled_entries] == [32]
    assert session.compile_s > 0


def test_growth_is_announced(pretended):
    session = Session(MODEL)
    with late_compiles_raise():
        for first in range(0, 4096, 500):
            session.step(IDS[first : first + 500])
    assert session.cache.capacity == 4096


@pytest.mark.parametrize("attention", ["dense", "window:40", "compressed:window=64,block=4"])
@pytest.mark.parametrize("page_size", [64, 256])
@pytest.mark.parametrize("tokens", [1, 33, 70, 260, 300, 520])
def test_what_is_planned_for_a_prompt_is_enough(monkeypatch, attention, page_size, tokens):
    profile = RuntimeProfile(page_size=page_size, attention=attention)
    if attention == "dense":
        with pretending(monkeypatch):
            check_plan(profile, tokens)
    elif tokens in (70, 300):
        check_plan(profile, tokens)  # the pretended model knows no such masks


def check_plan(profile, tokens):
    session = Session(MODEL, profile, ready=generation_entries(tokens, 20, GREEDY, False))
    with late_compiles_raise():
        session.generate(IDS[:tokens], 20, stop_ids=[])


def test_the_next_rung_is_compiled_ahead_when_three_quarters_are_full():
    log = []
    session = Session(MODEL, RuntimeProfile(page_size=64), ready=[("step", 512)], log=log.append)
    before = session.step(IDS[:700])
    assert not [line for line in log if "ahead" in line]
    session.step(IDS[700:768])
    session._runner.entries.wait()
    assert [line for line in log if "ahead" in line] == [
        "compiling ahead step rows=512 capacity=2048, step rows=32 capacity=2048"
    ]
    compilations, waited = GRAPHS.compilations, session.compile_s
    with late_compiles_raise():
        session.step(IDS[768:1300])
    # The growth itself, and its entries, were there; only their look-up took time.
    assert GRAPHS.compilations == compilations and session.cache.capacity == 2048
    assert session.compile_s - waited < waited
    assert len([line for line in log if "ahead" in line]) == 1
    assert np.isfinite(before).all()


def test_nothing_is_compiled_ahead_where_the_context_ends():
    log = []
    model = TinyModel(Tiny(context=1024, layers=1))
    session = Session(model, RuntimeProfile(page_size=64), ready=[("step", 512)], log=log.append)
    session.step(IDS[:512])
    session.step(IDS[512:1024])
    assert not [line for line in log if "ahead" in line]


def test_a_talk_that_goes_on_finds_the_next_rung_compiled():
    log = []
    session = Session(MODEL, RuntimeProfile(page_size=64), ready=[], log=log.append)
    session.generate(IDS[:1000], 4, stop_ids=[])
    assert not [line for line in log if "ahead" in line]  # one question has an end
    session.generate(IDS[:1000], 4, stop_ids=[], reuse=True)
    session._runner.entries.wait()
    assert [line for line in log if "compiling ahead" in line and "capacity=2048" in line]
    compilations = GRAPHS.compilations
    session.generate(IDS[:1100], 4, stop_ids=[], reuse=True)
    assert session.cache.capacity == 2048 and GRAPHS.compilations == compilations
