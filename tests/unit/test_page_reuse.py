"""Page activation with reuse, shared pages and growth: bounds follow the pages, approximations stay out."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.runtime.session import Session
from synapse_jax.runtime.sharing import with_attention
from synapse_jax.spec.runtime import RuntimeProfile
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

MODEL = TinyModel(Tiny(context=2048, layers=1))
A, B = np.random.RandomState(8).randint(0, 288, (2, 1400)).astype(np.int32)
POLICY = "pages:budget=64,window=16"


def new_session(attention: str = POLICY, positions: int = 1) -> Session:
    profile = RuntimeProfile(page_size=64, attention=attention)
    return Session(MODEL, profile, ready=[], positions=positions)


def generate(session: Session, ids: np.ndarray, reuse: bool = True, count: int = 24):
    return session.generate(ids, count, stop_ids=[], logprobs=True, reuse=reuse)


@pytest.fixture(scope="module")
def cold() -> Session:
    return new_session()


def test_generated_tokens_are_not_taken_for_a_prompt(cold):
    """Their keys and values come from rows that saw a part of the prefix; as a prompt they see all of it."""
    warm = new_session()
    first = generate(warm, A[:300])
    talk = np.concatenate([A[:300], first.token_ids, B[:50]]).astype(np.int32)
    answer = generate(warm, talk)
    assert (answer.reused_tokens, answer.reused_generated_tokens) == (300, 0)
    assert answer.reuse_note is None
    expected = generate(cold, talk, reuse=False)
    assert (answer.token_ids, answer.logprobs) == (expected.token_ids, expected.logprobs)
    # Dense attention reuses them, so the prompt here is one that could have been.
    dense = new_session("dense")
    first = generate(dense, A[:300])
    again = generate(dense, np.concatenate([A[:300], first.token_ids, B[:50]]).astype(np.int32))
    assert again.reused_tokens > 300 and again.reused_generated_tokens > 0


def test_bounds_follow_a_prefix_that_is_cut_and_shared(cold):
    """Prompts that part within a selection page, and endings that share the page that they write."""
    warm = new_session()
    for length in (70, 73, 65, 200, 129, 71):
        prompt = np.concatenate([A[:length], B[:40]]).astype(np.int32)
        answer, expected = generate(warm, prompt), generate(cold, prompt, reuse=False)
        assert (answer.token_ids, answer.logprobs) == (expected.token_ids, expected.logprobs), length
        endings = [B[100:103], A[500:520]]
        scored = warm.score_continuations(prompt[:-7], endings, reuse=True)
        alone = cold.score_continuations(prompt[:-7], endings)
        assert all(np.array_equal(a.nll, b.nll) for a, b in zip(scored, alone, strict=True))
        answer = generate(warm, prompt)
        assert answer.reused_tokens >= length - 7
        assert (answer.token_ids, answer.logprobs) == (expected.token_ids, expected.logprobs), length


def test_growth_carries_the_bounds():
    small, large = new_session(), new_session(positions=1200)
    prompt = A[:1015]
    answers = []
    for session in (small, large):
        generate(session, A[:1010], count=2)
        answers.append(generate(session, prompt, count=30))
        assert answers[-1].reused_tokens == 1010
    assert (small.cache.capacity, large.cache.capacity) == (2048, 2048)
    assert (answers[0].token_ids, answers[0].logprobs) == (answers[1].token_ids, answers[1].logprobs)


def test_allocated_bytes_count_the_bounds():
    sizes = {}
    for attention in ("dense", POLICY, POLICY + ",page=64"):
        session = new_session(attention)
        session.step(A[:3])
        sizes[attention] = session.cache.allocated_bytes
        assert session.cache.live_bytes == 3 * 2 * 2 * 32 * 4
    # Two numbers a dimension of a key (2 heads of 32), for every 16 or 64 of 1,024 positions.
    bounds = 2 * 2 * 32 * 4
    assert sizes[POLICY] - sizes["dense"] == 64 * bounds
    assert sizes[POLICY + ",page=64"] - sizes["dense"] == 16 * bounds


GEMMA = TinyModel(Tiny("gemma3", context=2048, layers=2, period=2, window=40))


@pytest.mark.parametrize("model", [MODEL, GEMMA], ids=["llama", "gemma3"])
def test_scores_reuse_the_prompt_before_them(model):
    """Only that: the scored rows read a part of the prefix, so their keys are no prompt's."""
    cold, warm = (Session(model, RuntimeProfile(page_size=64, attention=POLICY), ready=[]) for _ in range(2))
    expected = cold.score(A[:400], 300, rows=1)
    first = warm.score(A[:400], 300, rows=1, reuse=True)
    again = warm.score(A[:400], 300, rows=1, reuse=True)
    later = warm.score(A[:420], 320, rows=1, reuse=True)
    assert [scores.reused_tokens for scores in (first, again, later)] == [0, 299, 299]
    for scores in (first, again):
        np.testing.assert_array_equal(scores.nll, expected.nll)
    np.testing.assert_array_equal(later.nll, cold.score(A[:420], 320, rows=1).nll)


@pytest.mark.parametrize("model", [MODEL, GEMMA], ids=["llama", "gemma3"])
def test_one_prompt_serves_many_policies(model):
    """A session of another policy holds the same prompt, and neither changes the other."""
    first = Session(model, RuntimeProfile(page_size=64, attention=POLICY), ready=[])
    nll = first.score(A[:400], 300, rows=1, reuse=True).nll
    for attention in ("pages:budget=2048,window=1", "pages:budget=64,window=16,select=random,seed=3"):
        other = with_attention(first, attention)
        assert other.identity != first.identity
        scores = other.score(A[:400], 300, rows=1, reuse=True)
        assert scores.reused_tokens == 299
        cold = Session(model, RuntimeProfile(page_size=64, attention=attention), ready=[])
        np.testing.assert_array_equal(scores.nll, cold.score(A[:400], 300, rows=1).nll)
    np.testing.assert_array_equal(first.score(A[:400], 300, rows=1, reuse=True).nll, nll)
    for attention, reason in (
        ("pages:budget=64,window=16,page=32", "keeps other pages than"),
        ("dense", "is not one of decoded tokens"),
    ):
        with pytest.raises(InputError, match=reason):
            with_attention(first, attention)


def test_sessions_whose_bounds_are_of_other_layers_share_no_prompt():
    model = TinyModel(Tiny(context=256, layers=2))
    profile = RuntimeProfile(page_size=64, attention=f"{POLICY},dense_layers=0")
    session = Session(model, profile, ready=[])
    with pytest.raises(InputError, match="keeps other pages than"):
        with_attention(session, f"{POLICY},dense_layers=1")
