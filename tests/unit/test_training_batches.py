"""Windows of a token stream: where they come from, and the spans that are written into them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.train.batches import Batches, held_out_windows
from synapse_jax.train.plan import TrainingPlan

END = 9999
STREAM = np.arange(257, 257 + 3000, dtype=np.uint16)
"""Every token differs: a window says where it is from."""
PLAN = TrainingPlan(tokens=10_000, rows=4, length=50)


def windows(steps: int, stream: np.ndarray = STREAM, **fields) -> np.ndarray:
    batches = Batches(stream, END, dataclasses.replace(PLAN, **fields))
    return np.concatenate([batches.windows(step) for step in range(steps)])


def test_a_window_is_a_stretch_of_the_stream():
    found = windows(50)
    assert found.dtype == np.int32 and found.shape == (200, 51)
    assert (np.diff(found, axis=1) == 1).all()
    assert len(np.unique(found[:, 0])) > 150, "windows come from everywhere"


def test_first_and_last_place_are_reached_and_nothing_beyond():
    assert set(windows(20, STREAM[:52])[:, 0]) == {257, 258}
    assert set(windows(1, STREAM[:51])[:, 0]) == {257}


def test_a_step_does_not_depend_on_the_steps_before_it():
    batches = Batches(STREAM, END, dataclasses.replace(PLAN, repeat_share=0.3, repeat_length=8))
    there = [batches.windows(step) for step in range(10)]
    for step in (7, 0, 9, 3, 3):
        assert (batches.windows(step) == there[step]).all()


def test_other_steps_and_other_seeds_have_other_windows():
    assert len({row.tobytes() for row in windows(25)}) > 90
    assert (windows(5) != windows(5, seed=1)).any(axis=1).mean() > 0.9


@given(share=st.floats(0, 1), steps=st.integers(1, 40))
def test_so_many_windows_carry_a_span(share, steps):
    batches = Batches(STREAM, END, dataclasses.replace(PLAN, repeat_share=share, repeat_length=8))
    carrying = sum(batches.carries_span(number) for number in range(steps * PLAN.rows))
    assert abs(carrying - share * steps * PLAN.rows) < 1


def test_a_span_is_there_twice_and_all_else_is_untouched():
    size = 8
    plain, found = windows(100), windows(100, repeat_share=0.5, repeat_length=size)
    batches = Batches(STREAM, END, dataclasses.replace(PLAN, repeat_share=0.5, repeat_length=size))
    firsts, gaps = set(), set()
    for number, (before, after) in enumerate(zip(plain, found, strict=True)):
        changed = np.flatnonzero(before != after)
        if not batches.carries_span(number):
            assert not len(changed)
            continue
        first, second = changed[0], changed[-1] - size + 1
        assert second - first >= size
        assert set(changed) <= {*range(first, first + size), *range(second, second + size)}
        assert (after[first : first + size] == after[second : second + size]).all()
        firsts.add(first)
        gaps.add(second - first)
    assert min(firsts) == 0 and min(gaps) == size and max(gaps) > 35


def test_a_span_has_as_many_copies_as_are_drawn():
    size, most = 8, 5
    plan = dataclasses.replace(PLAN, repeat_share=1.0, repeat_length=size, repeat_copies=most)
    batches, counts, lasts = Batches(np.zeros(3000, np.uint16), END, plan), set(), set()
    for window in (row for step in range(25) for row in batches.windows(step)):
        (there,) = np.nonzero(window)
        assert len(there) % size == 0
        copies = window[there].reshape(-1, size)
        assert (copies == copies[0]).all()
        starts = there[::size]
        assert (there.reshape(-1, size) - starts[:, None] == np.arange(size)).all()
        counts.add(len(copies))
        lasts.add(int(there[-1]))
    assert counts == set(range(2, most + 1)) and max(lasts) == plan.length


def test_random_tokens_are_neither_bytes_nor_the_end():
    stream = np.zeros(3000, np.uint16)
    batches = Batches(stream, 259, dataclasses.replace(PLAN, repeat_share=1.0, repeat_length=20))
    drawn = np.concatenate([batches.windows(step).ravel() for step in range(20)])
    assert set(drawn[drawn > 0]) == {256, 257, 258}


def test_what_has_no_window_is_refused():
    with pytest.raises(InputError, match="50 tokens, a window needs 51"):
        Batches(STREAM[:50], END, PLAN)
    with pytest.raises(InputError, match="the vocabulary has 257"):
        Batches(STREAM, 256, dataclasses.replace(PLAN, repeat_share=0.1, repeat_length=8))
    assert Batches(STREAM, 256, PLAN)


@given(tokens=st.integers(51, 3000), data=st.data())
def test_held_out_windows_do_not_overlap_and_cover_the_stream(tokens, data):
    count = data.draw(st.integers(1, tokens // 51))
    found = held_out_windows(STREAM[:tokens], 50, count)
    assert found.dtype == np.int32 and found.shape == (count, 51)
    assert (np.diff(found, axis=1) == 1).all()
    starts = found[:, 0] - 257
    assert starts[0] == 0 and (np.diff(starts) >= 51).all() and found.max() < 257 + tokens
    assert np.ptp(np.diff(starts)) <= 1 if count > 1 else True


@pytest.mark.parametrize("count", [0, 4])
def test_more_held_out_windows_than_fit_are_refused(count):
    with pytest.raises(InputError, match=f"from 1 to 3 windows of 51, not {count}"):
        held_out_windows(STREAM[:203], 50, count)
