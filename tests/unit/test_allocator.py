"""Host bookkeeping of pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.kv.allocator import PageAllocator


def test_pages_come_lowest_first_and_go_back():
    pages = PageAllocator(4)
    first, second = pages.take(1), pages.take(2)
    assert (first, second, pages.free) == ([0], [1, 2], 1)
    pages.give_back(first)
    assert pages.take(2) == [0, 3]
    pages.grow(6)
    assert (pages.take(2), pages.pages, pages.free) == ([4, 5], 6, 0)


def test_too_many_pages_take_nothing():
    pages = PageAllocator(2)
    with pytest.raises(MemoryError, match="3 pages asked for, 2 of 2 free"):
        pages.take(3)
    assert pages.free == 2


@pytest.mark.parametrize("returned", [[0, 0], [1], [5]])
def test_pages_that_are_not_held_are_refused(returned):
    pages = PageAllocator(3)
    pages.take(1)
    with pytest.raises(ValueError, match="not all held"):
        pages.give_back(returned)
    assert pages.free == 2


def test_a_pool_does_not_shrink():
    with pytest.raises(ValueError, match="cannot shrink"):
        PageAllocator(3).grow(2)


@given(st.lists(st.integers(1, 5), max_size=20))
def test_no_page_has_two_holders(sizes):
    pages, held = PageAllocator(32), []
    for index, size in enumerate(sizes):
        if size <= pages.free:
            held.append(pages.take(size))
        elif held:
            pages.give_back(held.pop(index % len(held)))
        everyone = [page for group in held for page in group]
        assert len(set(everyone)) == len(everyone) == 32 - pages.free


def test_shared_pages_come_back_with_their_last_holder():
    pages = PageAllocator(3)
    assert pages.take(2) == [0, 1]
    pages.share([0, 1])
    pages.share([0])
    assert [pages.holders(page) for page in range(3)] == [3, 2, 0]
    pages.give_back([0, 1])
    assert (pages.free, pages.take(1)) == (1, [2])
    pages.give_back([1])
    assert (pages.free, pages.take(1), pages.holders(0)) == (1, [1], 2)


@pytest.mark.parametrize("wanted", [[2], [0, 2], [0, 0], [3], [-1]])
def test_only_held_pages_are_shared(wanted):
    pages = PageAllocator(3)
    pages.take(2)
    with pytest.raises(ValueError, match="not all held"):
        pages.share(wanted)
    assert [pages.holders(page) for page in range(3)] == [1, 1, 0]


def test_a_pool_grows_beside_what_is_held():
    pages = PageAllocator(2)
    pages.take(2)
    pages.grow(4)
    pages.grow(4)
    assert (pages.pages, pages.free, pages.take(2)) == (4, 2, [2, 3])
