"""A control's greedy text beside another engine's."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.evals.controls.control import Evaluated
from synapse_jax.evals.controls.greedy import Greedy
from synapse_jax.evals.quality import Answer, CaseResult, _first_difference
from synapse_jax.evals.tasks.answers import judge
from synapse_jax.evals.tasks.case import Case, CaseName

LOGITS = np.float32([[0, 3, 2, 1], [5, 0, 4.5, 1], [0, 1, 2, 3]])


def run(count: int, **more) -> Greedy:
    greedy = Greedy(count, **more)
    for logits in LOGITS:
        if not greedy.is_done:
            greedy.take(logits)
    return greedy


def test_the_likeliest_tokens_up_to_a_count_or_a_stop_token():
    assert (run(3).tokens, run(3).stopped, run(3).margin) == ([1, 0, 3], False, None)
    assert run(2).tokens == [1, 0] and run(2).is_done
    ended = run(3, stop_ids={0, 2})
    assert (ended.tokens, ended.stopped) == ([1], True)
    assert Greedy(0).is_done


@pytest.mark.parametrize(
    ("beside", "stop_ids", "margin"),
    [
        ([{1}, {0}, {3}], (), None),
        ([{1}, {2}, {0}], (), 0.5),  # only the first difference counts
        ([{2}, {0}, {3}], (), 1.0),
        ([{1}, {2, 3}], {2, 3}, 0.5),  # it stopped where we go on: the likelier of its stop tokens
        ([{1}, {2, 3}], {0, 2, 3}, 4.0 - 3.5),  # we stopped with another stop token than it could have
        ([{1}, {0, 2}], {0, 2}, None),  # both stopped
        ([{1}], {0}, None),  # nothing to be compared with
    ],
)
def test_the_margin_where_tokens_part(beside, stop_ids, margin):
    assert run(3, stop_ids=stop_ids, beside=beside).margin == margin


def answer(text: str, ids: tuple[int, ...], stopped: bool = False) -> Answer:
    return Answer(text, ids, stopped, Evaluated(0, ""), 0.0, judge(text, ("48271",)))


CASE = Case(CaseName("needle", 100, 0.5, 0), (1, 2), 5, ("48271",), (), (0,), (50, 5), 0.5)


@pytest.mark.parametrize(
    ("ours", "theirs", "same_way"),
    [
        ("12345", "12345", True),
        ("It is 12345", "12345.", True),
        ("12345", "54321", False),
        ("12345", "48271", False),
        ("none", "", True),
        ("48271", "12345", None),
        ("48271, 12345", "48271", None),
    ],
)
def test_failures_tell_what_the_control_did(ours, theirs, same_way):
    result = CaseResult(CASE, answer(ours, (1,)), answer(theirs, (1,)))
    assert result.control_failed_the_same_way is same_way
    assert result.failed is (same_way is not None)
    assert result.is_identical is (ours == theirs)
    alone = CaseResult(CASE, answer(ours, (1,)), None)
    assert (alone.control_failed_the_same_way, alone.is_identical) == (None, None)


@pytest.mark.parametrize(
    ("a", "b", "at"),
    [
        (((1, 2), False), ((1, 2), False), None),
        (((1, 2), True), ((1, 2), True), None),
        (((1, 2), False), ((1, 3), False), 1),
        (((1, 2), False), ((1,), True), 1),
        (((1, 2), True), ((1, 2), False), 2),
    ],
)
def test_the_first_token_that_differs(a, b, at):
    assert _first_difference(answer("", *a), answer("", *b)) == at
