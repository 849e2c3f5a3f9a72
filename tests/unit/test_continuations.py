"""Endings of one prompt equal the same texts scored one by one, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.dims import FORKS
from synapse_jax.errors import InputError
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from tests.pretend_engine import expected_sums, nll_of, pretending
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

PAGE, CONTEXT = 64, 2048
A, B, C = np.random.RandomState(8).randint(0, 288, (3, CONTEXT)).astype(np.int32)
MODELS = {
    "llama": TinyModel(Tiny(context=CONTEXT, layers=1)),
    "gemma3": TinyModel(Tiny("gemma3", context=CONTEXT, layers=2, period=2, window=40, rope_base=1e6)),
}


def sessions(name: str, kv_dtype: str = "f32") -> tuple[Session, Session]:
    """A session to try and one to compare with; pools of one size, so that each shape compiles once."""
    profile = RuntimeProfile(page_size=PAGE, kv_dtype=kv_dtype)
    return tuple(Session(MODELS[name], profile, ready=[], positions=CONTEXT) for _ in range(2))  # type: ignore


def independent(cold: Session, prefix, ending):
    return cold.score(np.concatenate([prefix, ending]), len(prefix))


def assert_equal(scores, cold, prefix, endings):
    assert len(scores) == len(endings)
    for mine, ending in zip(scores, endings, strict=True):
        expected = independent(cold, prefix, ending)
        assert np.array_equal(mine.nll, expected.nll), len(ending)
        assert np.array_equal(mine.greedy, expected.greedy), len(ending)


@pytest.mark.parametrize(
    ("name", "kv_dtype"), [("llama", "f32"), ("gemma3", "f32"), ("llama", "bf16"), ("gemma3", "f16")]
)
def test_continuations_equal_independent_scores(name, kv_dtype):
    """Prompts of one token, at a page's edges and longer; endings short, over several pages, above a step."""
    session, cold = sessions(name, kv_dtype)
    endings = [A[:1], B[:70], C[:3], A[:200], B[:PAGE], C[:600], A[:2]]
    for length in (1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 400):
        prefix = C[:length]
        assert_equal(session.score_continuations(prefix, endings), cold, prefix, endings)
        held = -(-(length - 1) // PAGE)
        assert session.cache.held == length - 1
        assert session.cache.pages_in_use == (held,) * len(session.spec.windows)
    assert session.cache.capacity == CONTEXT


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_more_continuations_than_a_step_has_sequences(name):
    session, cold = sessions(name)
    endings = [(A, B, C)[index % 3][index : index + 1 + index % 7] for index in range(2 * FORKS + 3)]
    prefix = B[:130]
    before = None
    for _ in range(2):
        scores = session.score_continuations(prefix, endings)
        assert_equal(scores, cold, prefix, endings)
        # Forks have given their pages back.
        assert before in (None, session.cache.pages_in_use)
        before = session.cache.pages_in_use


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_the_prompt_of_continuations_is_reused(name):
    session, cold = sessions(name)
    session.generate(A[:300], 1, reuse=True)
    prefix, endings = np.concatenate([A[:300], B[:20]]), [C[:9], A[:40]]
    for reused in (300, 319, 319):
        scores = session.score_continuations(prefix, endings, reuse=True)
        assert [score.reused_tokens for score in scores] == [reused] * 2
        assert_equal(scores, cold, prefix, endings)
    # The endings wrote over nothing: the prompt goes on, and so does one that is longer.
    assert session.generate(prefix, 3, stop_ids=[], reuse=True).reused_tokens == 319
    longer = np.concatenate([prefix, C[:50]])
    assert np.array_equal(session.score(longer, reuse=True).nll, cold.score(longer).nll)


def test_continuations_that_cannot_be_scored_are_refused():
    session, _ = sessions("llama")
    for endings, message in [
        ([], "there is no continuation to score"),
        ([[1], []], "at least one integer"),
        ([[1], [288]], "288"),
        ([[1], B[: CONTEXT - 9]], rf"a prefix of 10 tokens and a continuation of {CONTEXT - 9} are above"),
    ]:
        with pytest.raises(InputError, match=message):
            session.score_continuations(A[:10], endings)
    with pytest.raises(InputError, match="at least one integer"):
        session.score_continuations([], [[1]])
    with pytest.raises(InputError, match="above the context"):
        session.score_continuations(A, [[1]])
    assert session.cache.allocated_bytes == 0  # nothing ran


def test_the_context_is_usable_to_its_last_position(monkeypatch):
    with pretending(monkeypatch):
        for name in MODELS:
            session, _ = sessions(name)
            for length in (1, 1000, CONTEXT - 1):
                ending = B[: CONTEXT - length]
                (scores,) = session.score_continuations(A[:length], [ending])
                sums = expected_sums([*A[:length], *ending[:-1]], session.spec.windows)[length - 1 :]
                expected = [nll_of(s, t) for s, t in zip(sums, ending.tolist(), strict=True)]
                assert scores.nll.tolist() == expected


def test_progress_counts_every_row(monkeypatch):
    with pretending(monkeypatch):
        session, _ = sessions("llama")
        reports = []
        session.score_continuations(
            A[:600], [B[:700], C[:5]], progress=lambda done, total: reports.append((done, total))
        )
    assert reports == sorted(reports)
    assert reports[0][0] > 0 and reports[-1] == (599 + 705, 599 + 705)
