"""What an answer is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.evals.tasks.answers import contained, judge, judge_names, judge_number

CHAIN = ("QWERT", "ASDFG", "ZXCVB", "POIUY", "LKJHG")


@pytest.mark.parametrize(
    ("text", "verdict", "others"),
    [
        ("48271.", "right", ()),
        (" 48271", "right", ()),
        ("**48271**\n", "right", ()),
        ("(48271)", "right", ()),
        ("48,271", "right", ()),
        ("４８２７１", "right", ()),
        ("48271, 48271.", "right", ()),
        ("148271", "wrong", ("148271",)),
        ("482710", "wrong", ("482710",)),
        ("48,2711", "wrong", ("48", "2711")),
        ("1,482,71", "wrong", ("1482", "71")),
        ("48271.5", "wrong", ("48271.5",)),
        ("48 271", "wrong", ("48", "271")),
        ("A48271", "wrong", ()),
        ("48271_a", "wrong", ()),
        ("", "wrong", ()),
        ("The secret number of the amber falcon is", "wrong", ()),
        ("The secret number is 48271, not 12345.", "mixed", ("12345",)),
        ("12345 or 48,271, or 12345", "mixed", ("12345",)),
        ("12345", "wrong", ("12345",)),
        ("not forty-eight", "wrong", ()),
    ],
)
def test_a_number_counts_as_a_whole(text, verdict, others):
    found = judge_number(text, "48271")
    assert (found.verdict, found.others) == (verdict, others)
    right = verdict in ("right", "mixed")
    assert (found.score, found.found, found.missing) == (
        (1.0, ("48271",), ()) if right else (0.0, (), ("48271",))
    )


def test_rulers_metric_is_beside_the_exact_one():
    """It takes a number within a number; ours does not. A thousands' comma is the other way round."""
    assert (judge_number("148271", "48271").ruler, judge_number("148271", "48271").score) == (1.0, 0.0)
    assert (judge_number("48,271", "48271").ruler, judge_number("48,271", "48271").score) == (0.0, 1.0)
    assert contained("qwert and asdfgh", CHAIN) == pytest.approx(2 / 5)
    assert judge_names("qwert and asdfgh", CHAIN).ruler == pytest.approx(2 / 5)
    assert judge_names("qwert and asdfgh", CHAIN).score == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    ("text", "verdict", "score", "others"),
    [
        ("QWERT, ASDFG, ZXCVB, POIUY and LKJHG.", "right", 1.0, ()),
        ("LKJHG POIUY ZXCVB ASDFG QWERT", "right", 1.0, ()),
        ("qwert asdfg zxcvb poiuy lkjhg", "right", 1.0, ()),
        ("QWERT, ASDFG, ZXCVB, POIUY, LKJHG, MNBVC", "mixed", 1.0, ("MNBVC",)),
        ("QWERT QWERT QWERT QWERT QWERT", "partial", 0.2, ()),
        ("QWERTASDFG ZXCVBS xPOIUY LKJHG", "partial", 0.2, ()),
        ("QWERT, MNBVC", "partial", 0.2, ("MNBVC",)),
        ("48271", "wrong", 0.0, ()),
        ("", "wrong", 0.0, ()),
    ],
)
def test_names_count_as_whole_words_and_give_partial_credit(text, verdict, score, others):
    found = judge_names(text, CHAIN)
    assert (found.verdict, found.score, found.others) == (verdict, pytest.approx(score), others)
    assert set(found.found) | set(found.missing) == set(CHAIN)
    assert len(found.found) == round(5 * score)


def test_the_kind_of_answer_follows_from_what_is_asked_for():
    assert judge("48271", ("48271",)).verdict == "right"
    assert judge("QWERT", CHAIN).verdict == "partial"


@given(st.text(max_size=30), st.integers(10000, 99999), st.integers(0, 9))
def test_any_text_has_a_verdict_and_a_longer_number_never_counts(text, number, digit):
    judge_number(text, str(number))
    judge_names(text, CHAIN)
    assert judge_number(f"{number}{digit}", str(number)).score == 0
    assert judge_number(f"{digit + 1}{number}", str(number)).score == 0
    assert judge_number(f"{number}. {text}", str(number)).score == 1
