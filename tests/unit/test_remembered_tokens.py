"""The tokens that a session holds, and what was scored of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.kv.prefix import RememberedTokens


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def scores(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(count).astype(np.float32), np.arange(count).astype(np.int32) + 100


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_the_longest_common_prefix(ours, theirs):
    remembered = RememberedTokens()
    remembered.add(ids(*ours[:5]))
    remembered.add(ids(*ours[5:]))
    expected = 0
    while expected < min(len(ours), len(theirs)) and ours[expected] == theirs[expected]:
        expected += 1
    assert remembered.common(ids(*theirs)) == expected and len(remembered) == len(ours)


def test_what_is_cut_off_is_forgotten():
    remembered = RememberedTokens()
    remembered.add(ids(1, 2, 3))
    remembered.add(ids(4, 5), generated=True)
    assert [remembered.generated_before(n) for n in (3, 4, 5, 9)] == [0, 1, 2, 2]
    assert [remembered.exact(n) for n in (2, 3, 4, 9)] == [2, 3, 3, 3]
    remembered.keep(4)
    assert (len(remembered), remembered.common(ids(1, 2, 3, 4, 5))) == (4, 4)
    remembered.keep(3)
    remembered.add(ids(9))
    assert (remembered.exact(9), remembered.generated_before(9)) == (4, 0)
    remembered.forget()
    assert (len(remembered), remembered.exact(3), remembered.common(ids(1))) == (0, 0, 0)


def test_scores_are_read_up_to_the_first_gap():
    remembered = RememberedTokens()
    remembered.add(ids(*range(10)))
    known_nll, known_greedy = scores(4)
    remembered.add_scores(3, known_nll, known_greedy)  # positions 3 … 6
    for start, text, count in [
        (3, range(10), 4),
        (5, range(10), 2),
        (2, range(10), 0),
        (7, range(10), 0),
        (3, (0, 1, 2, 3, 4, 99, 6), 2),
        (3, (5, 1, 2, 3, 4), 0),
    ]:
        nll, greedy = np.full(5, -1, np.float32), np.full(5, -1, np.int32)
        assert remembered.read_scores(ids(*text), start, nll, greedy) == count
        assert nll[:count].tolist() == known_nll[start - 3 : start - 3 + count].tolist()
        assert greedy[:count].tolist() == known_greedy[start - 3 : start - 3 + count].tolist()
        assert (nll[count:] == -1).all() and (greedy[count:] == -1).all()
    remembered.keep(5)
    remembered.add(ids(5, 6))
    nll, greedy = np.zeros(4, np.float32), np.zeros(4, np.int32)
    assert remembered.read_scores(ids(*range(7)), 3, nll, greedy) == 2
