"""Whatever fails, wherever: what the cache says it holds is true; what follows equals a cold run (case 10).

On real pages for the places where they may be lost, and on pretended ones for every line of the bookkeeping.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from synapse_jax.runtime import pools
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from tests.interruptions import failing_after
from tests.pretend_engine import expected_sums, greedy_of, nll_of, pretending
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

PAGE, CONTEXT = 64, 1100
A, B, C = np.random.RandomState(9).randint(0, 288, (3, CONTEXT)).astype(np.int32)
MODELS = {
    "llama": TinyModel(Tiny(context=CONTEXT, layers=1)),
    "gemma3": TinyModel(Tiny("gemma3", context=CONTEXT, layers=2, period=2, window=40, rope_base=1e6)),
}
ERRORS = [RuntimeError, KeyboardInterrupt]


def joined(*parts) -> np.ndarray:
    return np.concatenate(parts)


def new_session(name: str, page_size: int = PAGE) -> Session:
    return Session(MODELS[name], RuntimeProfile(page_size=page_size), ready=[], positions=1)


def used_pages(session: Session) -> tuple[int, ...]:
    """Pages that the main sequence and its snapshots name."""
    cache = session.cache
    return tuple(
        len({page for holder in (cache.main, *cache._snapshots) for page in holder.tables[kind]._pages})
        for kind in range(len(session.spec.windows))
    )


@pytest.fixture(scope="module", params=MODELS)
def cold(request):
    """A session that never fails and never reuses, and its answers."""
    session = new_session(request.param)
    answers = {}

    def answer(prompt):
        key = prompt.tobytes()
        if key not in answers:
            answers[key] = session.generate(prompt, 3, stop_ids=[]).token_ids
        return answers[key]

    return request.param, answer


class Failing:
    """Makes one place fail the n-th time that it is reached."""

    def __init__(self, monkeypatch, place: str, turn: int, error: type[BaseException]):
        self._left, self._error = turn, error
        run, move = pools.Pools.run, pools.copy_between_pages
        if place in ("before donation", "after donation"):
            monkeypatch.setattr(pools.Pools, "run", lambda p, step: run(p, self._around(step, place)))
        elif place == "growth":
            monkeypatch.setattr(pools, "grow_pages", lambda *args: self._strike())
        elif place == "memory":
            monkeypatch.setattr(pools, "available_bytes", lambda device: self._strike())
        elif place == "copy":
            monkeypatch.setattr(pools, "copy_between_pages", lambda *args: (move(*args), self._strike())[0])

    def _around(self, step, place):
        def failing(pages):
            if place == "before donation":
                self._strike()
            out = step(pages)
            self._strike()
            return out

        return failing

    def _strike(self):
        self._left -= 1
        if self._left == 0:
            raise self._error("injected")

    def report(self, *_):
        """For the places where the caller's own code fails."""
        self._strike()


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize(
    ("place", "turn"),
    [("before donation", 1), ("before donation", 3), ("after donation", 1), ("after donation", 2)]
    + [("growth", 1), ("memory", 1), ("report", 3), ("text", 2)],
)
def test_a_failed_prompt_leaves_nothing_stale(cold, monkeypatch, place, turn, reuse, error):
    name, answer = cold
    if place == "growth" and not reuse:
        pytest.skip("nothing is held: there are new pages and no growth")
    session = new_session(name)
    session.generate(A[:320], 3, stop_ids=[], reuse=True)
    failing = joined(A[:300], B[: 740 if place != "text" else 100])  # 1,040 positions: the cache grows
    with monkeypatch.context() as patch:
        fault = Failing(patch, place, turn, error)
        given = {"progress": fault.report} if place == "report" else {}
        if place == "text":
            given = {"on_tokens": fault.report}
        with pytest.raises(error, match="injected"):
            session.generate(failing, 20, stop_ids=[], reuse=reuse, **given)
    cache = session.cache
    assert cache.held <= (300 if reuse else 0)
    assert cache.pages_in_use == used_pages(session)
    assert (cache.allocated_bytes == 0) == (cache.pools._pages is None)
    if place == "after donation":
        assert (cache.held, cache.allocated_bytes, cache.pages_in_use) == (
            (0, 0, (0,) * len(session.spec.windows))
        )
    if reuse and place in ("growth", "memory", "before donation") and name == "llama":
        assert cache.held == 300
    held = cache.held
    for prompt in (failing, joined(failing, C[:30]), C[:200], failing):
        again = session.generate(prompt, 3, stop_ids=[], reuse=True)
        assert again.token_ids == answer(prompt)
        if prompt is failing and held is not None:
            assert again.reused_tokens <= held
            held = None
    assert cache.pages_in_use == used_pages(session)
    session.reset()
    assert cache.pages_in_use == (0,) * len(session.spec.windows)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("place", "turn"), [("copy", 1), ("after donation", 2), ("report", 2)])
def test_failed_continuations_leave_nothing_stale(cold, monkeypatch, place, turn, error):
    name, answer = cold
    session = new_session(name)
    expected = session.score_continuations(A[:300], [B[:20], C[:90]], reuse=True)
    with monkeypatch.context() as patch:
        fault = Failing(patch, place, turn, error)
        with pytest.raises(error, match="injected"):
            session.score_continuations(
                joined(A[:290], C[:40]), [B[:400], C[:400]], reuse=True, progress=fault.report
            )
    cache = session.cache
    assert cache.held <= 290 and not cache._forks and cache.pages_in_use == used_pages(session)
    again = session.score_continuations(A[:300], [B[:20], C[:90]], reuse=True)
    for mine, before in zip(again, expected, strict=True):
        assert np.array_equal(mine.nll, before.nll)
    assert session.generate(A[:300], 3, stop_ids=[], reuse=True).token_ids == answer(A[:300])
    assert cache.pages_in_use == used_pages(session)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", ["before donation", "after donation", "growth"])
def test_a_failed_raw_step_says_what_is_left(cold, monkeypatch, place, error):
    name, answer = cold
    session = new_session(name)
    session.generate(A[:320], 3, stop_ids=[], reuse=True)
    held = session.cache.held
    with monkeypatch.context() as patch:
        Failing(patch, place, 1, error)
        with pytest.raises(error):
            session.step(B[: 750 if place == "growth" else 40])
    assert session.cache.held == (0 if place == "after donation" else held)
    if session.cache.held:  # goes on as if nothing had happened
        text = joined(A[:320], np.array(answer(A[:320])[: held - 320], np.int32), B[:40])
        assert session.step(B[:40]).argmax() == answer(text)[0]


@pytest.mark.parametrize("reuse", [False, True])
def test_a_raw_step_after_a_failure_goes_on_where_the_cache_is(monkeypatch, reuse):
    """The windows had moved on when the prompt failed: what is said to be held is held in every layer."""
    with pretending(monkeypatch):
        session = new_session("gemma3")
        session.generate(A[:50], 2, reuse=True)
        failing, fail = joined(A[:40], B[:1000]), failing_after(1000, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            session.generate(failing, 5, reuse=reuse, progress=fail)
        held = session.cache.held
        assert held == (40 if reuse else 0)
        assert session.cache.pages_in_use == used_pages(session) == ((1, 1) if reuse else (0, 0))
        text = joined(failing[:held], C[:10])
        logits = session.step(C[:10])
        assert logits.argmax() == greedy_of(expected_sums(text, session.spec.windows)[-1])


BOOKKEEPING = (
    *("kv/allocator.py", "kv/prefix.py", "kv/sequence.py", "kv/table.py"),
    *("runtime/cache.py", "runtime/pools.py", "runtime/prefix.py", "runtime/forks.py"),
)


class Interruption:
    """A trace function that presses Ctrl-C at the n-th line of the bookkeeping."""

    def __init__(self, line: int):
        self.left = line

    def __call__(self, frame, event, argument):
        return self._line if frame.f_code.co_filename.endswith(BOOKKEEPING) else None

    def _line(self, frame, event, argument):
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self._line


WORK = {
    "generate": lambda s: s.generate(joined(A[:300], B[:250]), 20, stop_ids=[], reuse=True),
    "score": lambda s: s.score(joined(A[:280], B[:780]), reuse=True),
    "continuations": lambda s: s.score_continuations(
        joined(A[:290], C[:30]), [C[:20], A[:40], B[:100]] * 7, reuse=True
    ),
    "step": lambda s: s.step(C[:730]),
}
POINTS = 25
"""Lines at which each kind of work is interrupted, spread over all of it."""


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", MODELS)
def test_an_interruption_at_any_line_leaves_a_cache_that_works(monkeypatch, name, work):
    def interrupted(line: int) -> tuple[Session, int]:
        session = new_session(name, 16)
        session.generate(A[:310], 3, reuse=True, stop_ids=[])
        trace, before = Interruption(line), sys.gettrace()
        sys.settrace(trace)
        try:
            WORK[work](session)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        return session, trace.left

    with pretending(monkeypatch):
        lines = -interrupted(0)[1]
        assert lines > 10 * POINTS
        # The bookkeeping between steps is short: every 7th line of the first ones, and more all over.
        for line in (*range(1, lines // 2, lines // POINTS + 1), *range(lines // 2, lines, lines // 9)):
            session, left = interrupted(line)
            assert left <= 0
            windows = session.spec.windows
            prompt, endings = joined(A[:300], B[:350]), [C[:20], A[:60]] * 9
            answer = session.generate(prompt, 3, stop_ids=[], reuse=True)
            sums = expected_sums([*prompt, *answer.token_ids], windows)[len(prompt) - 1 : -1]
            assert [greedy_of(value) for value in sums] == list(answer.token_ids), line
            assert session.cache.pages_in_use == used_pages(session), line
            for ending, scores in zip(
                endings, session.score_continuations(C[:90], endings, reuse=True), strict=True
            ):
                sums = expected_sums([*C[:90], *ending[:-1]], windows)[89:]
                assert scores.nll.tolist() == [nll_of(*pair) for pair in zip(sums, ending, strict=True)], line
            session.reset()
            assert session.cache.pages_in_use == (0,) * len(windows), line
