"""Prefix reuse: answers equal those of a cold session, and what was reused is told."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from tests.interruptions import failing_after
from tests.pretend_engine import VOCAB, expected_sums, greedy_of, pretending
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

PAGE = 64
A, B, C = np.random.RandomState(6).randint(0, 288, (3, 4200)).astype(np.int32)
TINIES = {
    "llama": Tiny(context=1024, layers=1),
    "qwen3": Tiny("qwen3", context=1024, layers=1),
    "mistral": Tiny(context=1024, layers=1, window=100),
    "gemma3": Tiny("gemma3", context=1024, layers=2, period=2, window=40, rope_base=1e6),
}
MODELS = {name: TinyModel(tiny) for name, tiny in TINIES.items()}
VARIANTS = [("llama", "f32"), ("llama", "bf16"), ("llama", "f16"), ("qwen3", "f32"), ("mistral", "f32"),
            ("gemma3", "f32"), ("gemma3", "bf16")]  # fmt: skip


def new_session(name: str, kv_dtype: str = "f32") -> Session:
    return Session(MODELS[name], RuntimeProfile(page_size=PAGE, kv_dtype=kv_dtype), ready=[])


def joined(*parts) -> np.ndarray:
    return np.concatenate(parts)


def same(scores, expected) -> bool:
    return np.array_equal(scores.nll, expected.nll) and np.array_equal(scores.greedy, expected.greedy)


def rows_evaluated(session: Session, monkeypatch) -> list[int]:
    """A list that tells the positions that steps write from now on."""
    rows = []
    open_pages = type(session.cache).open

    def watched(cache, sequence, first, count):
        rows.extend(range(first, first + count))
        open_pages(cache, sequence, first, count)

    monkeypatch.setattr(type(session.cache), "open", watched)
    return rows


@pytest.mark.parametrize(("name", "kv_dtype"), VARIANTS)
def test_reused_prefix_matches_a_cold_run(name, kv_dtype, monkeypatch):
    """AC-008-1, to the bit: greedy tokens, and the NLL of every position."""
    warm, cold = new_session(name, kv_dtype), new_session(name, kv_dtype)
    rows = rows_evaluated(warm, monkeypatch)
    first = warm.generate(A[:330], 12, stop_ids=[], reuse=True)
    assert (first.reused_tokens, first.reuse_note) == (0, None)
    rows.clear()
    longer = joined(A[:330], B[:70])
    answer = warm.generate(longer, 12, stop_ids=[], reuse=True)
    assert (answer.reused_tokens, answer.prompt_tokens, answer.reuse_note) == (330, 400, None)
    assert min(rows) == 330  # and nothing before it was evaluated
    assert answer.token_ids == cold.generate(longer, 12, stop_ids=[]).token_ids
    scored = joined(longer, C[:50])
    assert same(warm.score(scored, 400, reuse=True), cold.score(scored, 400))
    # Once more, now that the NLL of these positions is known: one row is evaluated.
    again = warm.score(scored, 400, reuse=True)
    assert same(again, cold.score(scored, 400)) and again.reused_tokens == len(scored) - 2


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_lengths_around_pages_and_the_same_prompt_again(name):
    """Case 8."""
    warm, cold = new_session(name), new_session(name)
    for length in (PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1, 1, 2):
        expected = {n: cold.generate(A[:n], 5, stop_ids=[]).token_ids for n in (length, length - 1) if n}
        for n in (length, length, length - 1, length):
            if not n:
                continue
            answer = warm.generate(A[:n], 5, stop_ids=[], reuse=True)
            assert answer.token_ids == expected[n], (length, n)
        assert answer.reused_tokens == length - 1


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_identical_prompt_reevaluates_only_its_last_token_and_other_work_invalidates(name, monkeypatch):
    """AC-008-2."""
    session = new_session(name)
    rows = rows_evaluated(session, monkeypatch)
    prompt = A[:300]
    expected = session.generate(prompt, 1, stop_ids=[], reuse=True).token_ids
    rows.clear()
    reports = []
    again = session.generate(
        prompt, 1, stop_ids=[], reuse=True, progress=lambda done, total: reports.append((done, total))
    )
    assert (again.token_ids, again.reused_tokens, rows) == (expected, 299, [299])
    assert reports == [(299, 300), (300, 300)]
    others = {
        "score": lambda: session.score(prompt),
        "generate": lambda: session.generate(prompt, 1),
        "step": lambda: session.step(B[:3]),
        "logits": lambda: session.logits(prompt, [5]),
        "reset": lambda: session.reset(),
        "continuations": lambda: session.score_continuations(prompt, [B[:3]]),
    }
    for other, work in others.items():
        session.generate(prompt, 1, stop_ids=[], reuse=True)
        work()
        rows.clear()
        after = session.generate(prompt, 1, stop_ids=[], reuse=True)
        assert (after.token_ids, after.reused_tokens, len(rows)) == (expected, 0, 300), other
    # What is refused before it begins is no work.
    with pytest.raises(InputError):
        session.generate([], 1)
    assert session.generate(prompt, 1, stop_ids=[], reuse=True).reused_tokens == 299


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3"])
def test_failed_request_keeps_only_the_prefix_it_did_not_overwrite(name, error):
    """AC-008-3, on the real pages: it fails after a step of the prompt has been written."""
    session, cold = new_session(name), new_session(name)
    session.generate(A[:300], 1, reuse=True)
    failing, fail = joined(A[:250], B[:600]), failing_after(600, error)
    with pytest.raises(error):
        session.generate(failing, 1, reuse=True, progress=fail)
    kept = session.cache.held
    assert kept == 250 if name == "llama" else kept <= 250
    for prompt in (failing, joined(A[:300], C[:20]), A[:280], C[:100], failing):
        answer = session.generate(prompt, 3, stop_ids=[], reuse=True)
        assert answer.reused_tokens <= 250 or prompt is not failing
        assert answer.token_ids == cold.generate(prompt, 3, stop_ids=[]).token_ids
    assert same(session.score(failing, reuse=True), cold.score(failing))


def test_generated_tokens_are_reused_and_counted_apart():
    session, cold = new_session("llama"), new_session("llama")
    first = session.generate(A[:100], 20, stop_ids=[], reuse=True)
    turn = joined(A[:100], np.array(first.token_ids, np.int32), B[:30])
    second = session.generate(turn, 8, stop_ids=[], reuse=True)
    # The last new token was not evaluated.
    assert (second.reused_tokens, second.reused_generated_tokens) == (119, 19)
    assert second.token_ids == cold.generate(turn, 8, stop_ids=[]).token_ids
    # Scores are promised to the bit: they begin where tokens were generated, and what follows is exact again.
    scores = session.score(turn, 130, reuse=True)
    assert scores.reused_tokens == 100 and same(scores, cold.score(turn, 130))
    third = session.generate(turn, 8, stop_ids=[], reuse=True)
    assert (third.reused_tokens, third.reused_generated_tokens) == (149, 0)
    endings = session.score_continuations(turn, [C[:9]], reuse=True)
    assert same(endings[0], cold.score(joined(turn, C[:9]), len(turn)))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_scores_are_reused_where_they_are_known(name, monkeypatch):
    """Case 9: a position whose NLL nobody asked for is evaluated when somebody does."""
    session, cold = new_session(name), new_session(name)
    rows = rows_evaluated(session, monkeypatch)
    text = A[:400]
    expected = cold.score(text)
    for start, reused in ((200, 0), (200, 398), (300, 398), (350, 398)):
        scores = session.score(text, start, reuse=True)
        assert scores.reused_tokens == reused and len(scores.nll) == 400 - start
        assert np.array_equal(scores.nll, expected.nll[start - 1 :])
        assert np.array_equal(scores.greedy, expected.greedy[start - 1 :])
    scores = session.score(text, 100, reuse=True)  # positions 100 … 199 are not known
    assert scores.reused_tokens == 99
    assert np.array_equal(scores.nll, expected.nll[99:])
    for rows_a_step in (32, 64, 512):
        assert same(session.score(text, reuse=True, rows=rows_a_step), expected)
    # A prompt leaves no NLL behind.
    session.generate(B[:200], 1, reuse=True)
    scores = session.score(B[:200], reuse=True)
    assert scores.reused_tokens == 0 and same(scores, cold.score(B[:200]))
    rows.clear()
    longer = session.score(joined(B[:200], C[:100]), reuse=True)
    assert min(rows) == longer.reused_tokens == 199
    assert same(longer, cold.score(joined(B[:200], C[:100])))
    # Part of a text, then the rest of it.
    session.score(C[:300], 1, 150, reuse=True)
    rest = session.score(C[:300], reuse=True)
    assert rest.reused_tokens == 149 and same(rest, cold.score(C[:300]))


def test_reuse_and_one_row_steps_do_not_go_together():
    session = new_session("llama")
    with pytest.raises(InputError, match="reuse needs at least 2 scoring rows"):
        session.score(A[:20], rows=1, reuse=True)


def test_a_window_that_has_moved_on_serves_what_it_still_can():
    """Hold 4,000 tokens, then share 2,000: 0 are reused and it says why; the next one has the 2,000."""
    model = TinyModel(Tiny("gemma3", context=4200, layers=2, period=2, window=40, rope_base=1e6))
    profile = RuntimeProfile(page_size=PAGE)
    warm, cold = (Session(model, profile, ready=[], positions=4200) for _ in range(2))
    texts = [A[:4000], joined(A[:2000], B[:30]), joined(A[:2000], C[:45]), joined(A[:2000], B[5:50])]
    answers = []
    for text in texts:
        answer = warm.generate(text, 4, stop_ids=[], reuse=True)
        assert answer.token_ids == cold.generate(text, 4, stop_ids=[]).token_ids
        answers.append(answer)
    assert [answer.reused_tokens for answer in answers] == [0, 0, 2000, 2000]
    assert answers[1].reuse_note == (
        "2000 tokens are common, but the sliding windows have moved past them (at 4003); snapshots: 4000"
    )
    assert [answers[index].reuse_note for index in (0, 2, 3)] == [None] * 3


@pytest.fixture
def pretended(monkeypatch):
    """Sessions whose model computes next to nothing."""
    with pretending(monkeypatch):
        yield


def test_snapshots_are_few_and_the_newest(pretended):
    session = new_session("gemma3")
    for text in (A, B, C):
        session.generate(text[:600], 1, reuse=True)
    assert session.cache.snapshots == (600,)  # of other texts there is nothing
    for length in (650, 700, 750):
        session.generate(C[:length], 1, reuse=True)
    assert session.cache.snapshots == (700, 750)
    # Where not all of what is common can be used, the most of it is.
    session.reset()
    session.generate(C[:300], 1, reuse=True)
    session.generate(C[:900], 1, reuse=True)
    assert session.cache.snapshots == (300, 900)
    prompt = joined(C[:700], A[:5])
    answer = session.generate(prompt, 1, reuse=True)
    assert answer.reused_tokens == 300
    assert answer.reuse_note == (
        "700 tokens are common, but the sliding windows have moved past them (at 900); snapshots: 300, 900"
    )
    assert answer.token_ids[0] == greedy_of(expected_sums(prompt, MODELS["gemma3"].spec.windows)[-1])
    # A snapshot was taken where the texts part.
    assert session.cache.snapshots == (700, 705)
    assert session.generate(joined(C[:700], B[:300]), 1, reuse=True).reused_tokens == 700


def test_stop_tokens_and_empty_answers_are_remembered_as_they_are(pretended):
    session = new_session("llama")
    sums = expected_sums(A[:100], (0,))
    assert session.generate(A[:100], 9, stop_ids=[greedy_of(sums[-1])], reuse=True).token_ids == ()
    assert session.generate(A[:101], 0, reuse=True).reused_tokens == 100
    assert session.generate(A[:102], 0, reuse=True).reused_tokens == 101
    assert session.generate(A[:1], 0, reuse=True).reused_tokens == 0
    assert VOCAB == session.spec.vocab_size


def test_numbers_that_are_not_finite_are_not_remembered():
    model = TinyModel(Tiny(context=512, layers=1, tied=False))
    model.weights["embed"][7] = np.nan
    session = Session(model, ready=[])
    good = session.score([11] * 40, reuse=True)
    with pytest.raises(RunError, match="is nan"):
        session.score([11] * 30 + [7] * 9, reuse=True)
    assert session.cache.held == 0 and session.cache.pages_in_use == (0,)
    again = session.score([11] * 40, reuse=True)
    assert again.reused_tokens == 0 and np.array_equal(again.nll, good.nll)


def test_many_requests_take_no_more_pages_and_no_more_memory():
    """Case 43: 200 requests."""
    session = new_session("gemma3")
    random = np.random.RandomState(0)

    def request(number):
        kind, length = number % 4, 1 + random.randint(400)
        text = joined((A, B)[number % 2][:length], C[: 1 + random.randint(100)])
        if kind == 0:
            session.generate(text, 5, reuse=True)
        elif kind == 1:
            session.score(text, reuse=True)
        elif kind == 2:
            session.score_continuations(text, [B[:5], C[:20]], reuse=bool(number % 3))
        else:
            session.generate(text, 3)

    for number in range(40):
        request(number)
    session.reset()
    assert session.cache.pages_in_use == (0, 0)
    pages, resident = session.cache.allocated_bytes, resident_bytes()
    for number in range(200):
        request(number)
    session.reset()
    assert session.cache.pages_in_use == (0, 0) and session.cache.allocated_bytes == pages
    assert resident_bytes() - resident < 8 << 20


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except FileNotFoundError:
        pytest.skip("only Linux tells how much memory is resident")
