"""Page tables against a plain picture of them: what each position's cell holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.kinds import Kind
from synapse_jax.kv.sequence import PagedSequence
from synapse_jax.kv.table import PageTable

C, PAGES = 4, 24


def held_pages(table: PageTable) -> int:
    """Pages that a table holds, shared ones included."""
    return table.end - table.first


def test_extend_takes_pages_and_copies_the_last_partial_one():
    allocator = PageAllocator(8)
    table = PageTable(allocator, C, 0)
    assert table.extend(0, 6) == [] and table.row(4).tolist() == [0, 1, 0, 0]
    fork = table.fork(6)
    assert (held_pages(fork), allocator.free) == (2, 6)
    assert (fork.needs(6, 1), fork.needs(6, 3), table.needs(6, 2)) == (1, 2, 1)
    # The fork writes into the page that both hold: it gets a copy of it, and the first page stays shared.
    assert fork.extend(6, 3) == [(1, 2)]
    assert fork.row(4).tolist() == [0, 2, 3, 0] and table.row(4).tolist() == [0, 1, 0, 0]
    # Now nobody else holds the old page, and nothing is copied.
    assert table.extend(6, 2) == [] and allocator.holders(0) == 2
    fork.release()
    table.release()
    assert allocator.free == 8


def test_a_page_that_is_overwritten_from_its_first_cell_is_not_copied():
    allocator = PageAllocator(4)
    table = PageTable(allocator, C, 0)
    table.extend(0, 8)
    fork = table.fork(8)
    table.cut(4)
    fork.cut(8)
    other = fork.fork(8)
    assert other.extend(4, 4) == []  # all four cells are new
    assert other.row(2).tolist() == [0, 2] and fork.row(2).tolist() == [0, 1]


def test_a_table_without_pages_enough_is_not_changed():
    allocator = PageAllocator(3)
    table = PageTable(allocator, C, 0)
    table.extend(0, 9)
    fork = table.fork(9)
    with pytest.raises(MemoryError):
        fork.extend(9, 1)
    assert fork.row(3).tolist() == [0, 1, 2] and allocator.free == 0
    assert [allocator.holders(page) for page in range(3)] == [2, 2, 2]


def test_a_window_lets_go_of_what_no_row_can_see():
    allocator = PageAllocator(8)
    table = PageTable(allocator, C, 5)
    table.extend(0, 14)
    table.slide(14)  # a row at 14 sees 10 … 14
    assert (table.first, table.end, allocator.free) == (2, 4, 6)
    assert table.row(5).tolist() == [0, 0, 2, 3, 0]
    assert [table.serves(length) for length in (11, 12, 14, 16, 17)] == [False, True, True, True, False]
    table.slide(12)  # does not come back
    assert table.first == 2
    table.slide(100)
    assert (table.first, held_pages(table), allocator.free) == (24, 0, 8)


def test_a_table_without_a_window_serves_every_length_that_it_has():
    table = PageTable(PageAllocator(8), C, 0)
    table.extend(0, 10)
    table.slide(10)
    assert [table.serves(length) for length in (0, 1, 10, 12, 13)] == [True] * 4 + [False]
    table.cut(5)
    assert (held_pages(table), table.serves(8), table.serves(9)) == (2, True, False)


def test_a_table_becomes_another():
    allocator = PageAllocator(8)
    table, other = PageTable(allocator, C, 3), PageTable(allocator, C, 3)
    table.extend(0, 8)
    other.extend(0, 12)
    other.slide(11)
    table.become(other)
    assert (table.first, table.row(3).tolist()) == (other.first, other.row(3).tolist())
    other.release()
    assert (allocator.free, table.first) == (7, 2)


def test_a_sequence_serves_only_what_is_valid_in_all_kinds():
    allocators = [PageAllocator(8), PageAllocator(8)]
    sequence = PagedSequence.empty((Kind(0), Kind(3)), allocators, C)
    sequence.extend(0, 12)
    sequence.held = 12
    sequence.slide(12)
    assert [sequence.serves(length) for length in (8, 9, 10, 12, 13)] == [False, False, True, True, False]
    fork = sequence.fork(11)
    assert fork.held == 11 and sequence.needs(12, 1) == [1, 1] and fork.needs(11, 1) == [1, 1]
    sequence.cut(10)
    assert sequence.held == 10
    sequence.release()
    assert sequence.held == 0 and allocators[0].free == 8 - held_pages(fork.tables[0])
    fork.release()
    assert [allocator.free for allocator in allocators] == [8, 8]


class TableMachine(RuleBasedStateMachine):
    """Tables that share a pool; cells hold what was last written to them, as on the device."""

    @initialize(window=st.sampled_from([0, 1, 2, 5, 9]))
    def begin(self, window):
        self.window = window
        self.allocator = PageAllocator(PAGES)
        self.cells = np.full((PAGES, C), -1)
        self.tables: list[PageTable] = []
        self.texts: list[list[int]] = []
        """What each table's positions should hold."""
        self.written = 0

    def pick(self, index):
        return index % len(self.tables) if self.tables else None

    @rule()
    def new(self):
        if len(self.tables) < 4:
            self.tables.append(PageTable(self.allocator, C, self.window))
            self.texts.append([])

    @rule(index=st.integers(0, 9), count=st.integers(1, 11))
    def write(self, index, count):
        if (i := self.pick(index)) is None:
            return
        table, text = self.tables[i], self.texts[i]
        first = len(text)
        table.slide(first)
        needed, free = table.needs(first, count), self.allocator.free
        if needed > free:
            with pytest.raises(MemoryError):
                table.extend(first, count)
            assert self.allocator.free == free
            return
        for source, target in table.extend(first, count):
            self.cells[target] = self.cells[source]
        assert self.allocator.free >= free - needed
        row = table.row(64)
        for position in range(first, first + count):
            assert self.allocator.holders(row[position // C]) == 1  # nobody else's page is written
            self.cells[row[position // C], position % C] = self.written
            text.append(self.written)
            self.written += 1

    @rule(index=st.integers(0, 9), back=st.integers(0, 20))
    def cut(self, index, back):
        if (i := self.pick(index)) is None:
            return
        length = max(len(self.texts[i]) - back, 0)
        if self.tables[i].serves(length):
            self.tables[i].cut(length)
            del self.texts[i][length:]

    @rule(index=st.integers(0, 9), back=st.integers(0, 20))
    def fork(self, index, back):
        if (i := self.pick(index)) is None or len(self.tables) == 4:
            return
        length = max(len(self.texts[i]) - back, 0)
        if self.tables[i].serves(length):
            self.tables.append(self.tables[i].fork(length))
            self.texts.append(self.texts[i][:length])

    @rule(index=st.integers(0, 9), other=st.integers(0, 9))
    def become(self, index, other):
        if (i := self.pick(index)) is not None and (j := self.pick(other)) != i:
            self.tables[i].become(self.tables[j])
            self.texts[i] = list(self.texts[j])

    @rule(index=st.integers(0, 9))
    def release(self, index):
        if (i := self.pick(index)) is not None:
            self.tables.pop(i).release()
            self.texts.pop(i)

    @invariant()
    def every_key_in_reach_is_where_the_table_says(self):
        if not hasattr(self, "tables"):
            return
        for table, text in zip(self.tables, self.texts, strict=True):
            length, row = len(text), table.row(64)
            assert table.serves(length)
            oldest = max(length - self.window + 1, 0) if self.window else 0
            for position in range(oldest, length):
                assert self.cells[row[position // C], position % C] == text[position]
        holders = np.zeros(PAGES, int)
        for table in self.tables:
            for page in table._pages:
                holders[page] += 1
        assert holders.tolist() == [self.allocator.holders(page) for page in range(PAGES)]
        assert self.allocator.free == int((holders == 0).sum())


TableMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestTables = TableMachine.TestCase
