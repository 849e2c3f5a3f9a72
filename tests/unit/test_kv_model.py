"""The KV cache of a session against what each request alone would answer, in thousands of random orders.

The model is pretended: what it answers depends on every key that a row should see, and on no other.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from synapse_jax.errors import InputError, RunError
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from tests.pretend_engine import VOCAB, expected_sums, greedy_of, nll_of, pretending
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

CONTEXT = 1400
"""Two rungs of the capacity ladder, the second one cut off."""
TEXTS = [np.random.RandomState(seed).randint(0, VOCAB, CONTEXT).tolist() for seed in range(3)]
MODELS = [
    TinyModel(Tiny(context=CONTEXT, layers=1)),
    TinyModel(Tiny(context=CONTEXT, layers=1, window=30)),
    TinyModel(Tiny("gemma3", context=CONTEXT, layers=2, period=2, window=5, rope_base=1e6)),
    TinyModel(Tiny("gemma3", context=CONTEXT, layers=2, period=2, window=100, rope_base=1e6)),
]

lengths = st.one_of(
    st.integers(1, 40),
    st.sampled_from([63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513]),
    st.integers(1, 700),
    st.integers(1, 1300),
)
PLACES = [
    *("before a step", "in a step", "after a step", "in a report", "before a copy", "after a copy"),
    *("before growth", "after growth", "new pages"),
]
places = st.sampled_from([None] * 12 + PLACES + PLACES[:6])
faults = st.tuples(places, st.integers(0, 4), st.sampled_from([RuntimeError, KeyboardInterrupt]))


class KvMachine(RuleBasedStateMachine):
    """A session, and what its cache should hold."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.fault: tuple | None = None
        self.pretending = pretending(self.patch, self.hook)
        self.pretending.__enter__()
        self.held: list[int] = []
        self.remembered: list[int] = []

    def teardown(self):
        self.pretending.__exit__(None, None, None)
        self.patch.undo()

    @initialize(model=st.sampled_from(MODELS), page_size=st.sampled_from([16, 64, 256]))
    def begin(self, model, page_size):
        self.session = Session(model, RuntimeProfile(page_size=page_size), ready=[])
        self.windows, self.page_size = model.spec.windows, page_size

    def hook(self, where):
        if self.fault is None or self.fault[0] != where:
            return
        place, turns, error = self.fault
        self.fault = (place, turns - 1, error) if turns else None
        if not turns:
            raise error("injected")

    def attempt(self, fault, ids, work):
        """Does work on a text, whose fault may strike; returns its result, or None where it did."""
        self.fault = fault
        before = list(self.remembered)
        try:
            return work()
        except (RuntimeError, KeyboardInterrupt) as error:
            assert not isinstance(error, RunError), error
            held = self.session.cache.held
            assert held <= len(ids)
            self.held = list(ids[:held])
            # Still remembered is a prefix of what was remembered.
            kept = len(self.session._prefix.tokens)
            assert kept <= len(before)
            self.remembered = before[:kept]
            assert self.remembered == list(ids[:kept])
            return None
        finally:
            self.fault = None

    def reusable(self, ids, most):
        """Tokens that a model without windows reuses."""
        common = 0
        for ours, theirs in zip(self.remembered, ids[:most], strict=False):
            if ours != theirs:
                break
            common += 1
        return min(common, len(self.held))

    def begun(self, ids, reuse):
        """Most tokens that work on a prompt may reuse; without reuse what was remembered is forgotten."""
        if not reuse:
            self.remembered = []
        return self.reusable(ids, len(ids) - 1)

    def check_reuse(self, result, expected):
        if not any(self.windows):
            assert result == expected
        assert result <= expected

    def report(self, *_):
        self.hook("in a report")

    @rule(a=st.sampled_from(TEXTS), b=st.sampled_from(TEXTS), first=lengths, second=lengths,
          new=st.integers(0, 40), reuse=st.booleans(), again=st.booleans(), fault=faults)  # fmt: skip
    def generate(self, a, b, first, second, new, reuse, again, fault):
        ids = (a[:first] + b[:second])[: CONTEXT - 40]
        if again and self.held:  # goes on where the session is, as a conversation does
            ids = (self.remembered[: first + second] + b[:3])[: CONTEXT - 40]
        expected = self.begun(ids, reuse)
        done = self.attempt(
            fault,
            ids,
            lambda: self.session.generate(
                ids, new, reuse=reuse, progress=self.report, on_tokens=self.report, stop_ids=range(8)
            ),
        )
        if done is None:
            return
        self.check_reuse(done.reused_tokens, expected)
        assert (done.reuse_note is None) or any(self.windows) or reuse
        text = list(ids)
        out: list[int] = []
        while len(out) < new:
            token = greedy_of(expected_sums(text, self.windows)[-1]) if new < 3 else None
            if token is None:
                break
            if token < 8:
                break
            out.append(token)
            text.append(token)
        if new < 3:
            assert list(done.token_ids) == out
        else:  # each token from one evaluation of all
            text = list(ids) + list(done.token_ids)
            sums = expected_sums(text, self.windows)
            assert [greedy_of(answer) for answer in sums[len(ids) - 1 : -1]] == list(done.token_ids)
            if done.finish_reason == "stop":
                assert greedy_of(sums[-1]) < 8
            else:
                assert len(done.token_ids) == new
        self.held = (list(ids) + list(done.token_ids))[: self.session.cache.held]
        assert len(self.held) >= len(ids)
        if reuse:
            self.remembered = list(ids) + list(done.token_ids)

    @rule(a=st.sampled_from(TEXTS), b=st.sampled_from(TEXTS), first=lengths, second=lengths,
          cut=st.floats(0, 1), rows=st.sampled_from([512, 512, 100, 32, 7, 1]), reuse=st.booleans(),
          again=st.booleans(), fault=faults)  # fmt: skip
    def score(self, a, b, first, second, cut, rows, reuse, again, fault):
        ids = (a[:first] + b[:second])[:CONTEXT]
        if again:
            ids = (self.remembered + b[:second])[:CONTEXT]
        if len(ids) < 2:
            return
        start = 1 + int(cut * (len(ids) - 2))
        reuse = reuse and rows > 1
        if not reuse:
            self.remembered = []
        done = self.attempt(
            fault,
            ids,
            lambda: self.session.score(ids, start, rows=rows, reuse=reuse, progress=self.report),
        )
        if done is None:
            return
        sums = expected_sums(ids[:-1], self.windows)[start - 1 :]
        assert done.nll.tolist() == [nll_of(s, t) for s, t in zip(sums, ids[start:], strict=True)]
        assert done.greedy.tolist() == [greedy_of(answer) for answer in sums]
        assert done.reused_tokens <= self.reusable(ids, len(ids) - 2)
        self.held = ids[:-1]
        self.remembered = list(ids) if reuse else []

    @rule(a=st.sampled_from(TEXTS), first=lengths, endings=st.lists(
        st.tuples(st.sampled_from(TEXTS), lengths), min_size=1, max_size=5), copies=st.integers(1, 5),
        reuse=st.booleans(), fault=faults)  # fmt: skip
    def score_continuations(self, a, first, endings, copies, reuse, fault):
        ids = a[: min(first, CONTEXT - 1)]
        texts = [text[: min(length, CONTEXT - len(ids))] for text, length in endings] * copies
        expected = self.begun(ids, reuse)
        done = self.attempt(
            fault,
            ids,
            lambda: self.session.score_continuations(ids, texts, reuse=reuse, progress=self.report),
        )
        if done is None:
            return
        for ending, scores in zip(texts, done, strict=True):
            sums = expected_sums([*ids, *ending[:-1]], self.windows)[len(ids) - 1 :]
            assert scores.nll.tolist() == [nll_of(s, t) for s, t in zip(sums, ending, strict=True)]
            assert scores.greedy.tolist() == [greedy_of(answer) for answer in sums]
            assert scores.reused_tokens <= expected
        self.held = ids[:-1]
        self.remembered = list(ids) if reuse else []

    @precondition(lambda self: len(self.held) < CONTEXT - 1)
    @rule(text=st.sampled_from(TEXTS), count=lengths, fault=faults)
    def step(self, text, count, fault):
        tokens = text[: min(count, CONTEXT - len(self.held))]
        whole = self.held + tokens
        self.remembered = []
        logits = self.attempt(fault, whole, lambda: self.session.step(tokens))
        if logits is not None:
            assert logits.argmax() == greedy_of(expected_sums(whole, self.windows)[-1])
            self.held = whole

    @rule()
    def reset(self):
        self.session.reset()
        self.held, self.remembered = [], []
        assert self.session.cache.pages_in_use == (0,) * len(self.windows)

    @rule(text=st.sampled_from(TEXTS), count=lengths)
    def logits(self, text, count):
        ids = text[:count]
        got = self.session.logits(ids, [0, count - 1]).argmax(-1)
        sums = expected_sums(ids, self.windows)
        assert got.tolist() == [greedy_of(sums[0]), greedy_of(sums[-1])]
        self.held, self.remembered = ids, []

    @rule()
    def refused(self):
        with pytest.raises(InputError):
            self.session.score_continuations(TEXTS[0], [[1]])

    @invariant()
    def pages_are_accounted_for(self):
        if not hasattr(self, "session"):
            return
        cache = self.session.cache
        assert cache.held == len(self.held)
        assert not cache._forks
        holders = [cache.main, *cache._snapshots]
        for kind, used in enumerate(cache.pages_in_use):
            assert used == len({page for holder in holders for page in holder.tables[kind]._pages})
        assert len(self.session._prefix.tokens) == len(self.remembered)
        assert all(length <= cache.held or not self.remembered for length in cache.snapshots)


KvMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=12)
TestKv = KvMachine.TestCase
