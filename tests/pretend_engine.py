"""A model that computes next to nothing: what it answers depends on every key that a row should see.

It takes the place of the compiled graphs of a session, so that the bookkeeping of pages can be tried in
thousands of ways. A key is a hash of all tokens up to it, made from the key before, as it is found in the
pages; a row's answer is a hash of the keys in its window. One wrong page anywhere changes the answers.
Keys of generated tokens are marked: what sees one has another NLL and the same greedy token.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from synapse_jax.graph.entry import DECODE_ROLE, Entry
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.runtime import entries, pools, runner

MASK = (1 << 64) - 1
VOCAB = 288


def mix(*numbers: int) -> int:
    """A hash, 64 bits."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = ((state ^ (int(number) & MASK)) * 0xBF58476D1CE4E5B9) & MASK
        state ^= state >> 29
    return state


def expected_sums(ids: Sequence[int], windows: Sequence[int]) -> list[int]:
    """What each row of a text answers when it is evaluated from its beginning."""
    keys, key = [0], 0
    for position, token in enumerate(ids):
        key = mix(key, int(token), position)
        keys.append((keys[-1] + key) & MASK)
    out = []
    for position in range(len(ids)):
        firsts = [max(position - window + 1, 0) if window else 0 for window in windows]
        out.append(mix(*((keys[position + 1] - keys[first]) & MASK for first in firsts)))
    return out


def greedy_of(answer: int) -> int:
    """The most likely token after a row."""
    return answer % VOCAB


def nll_of(answer: int, target: int) -> float:
    """The NLL of a token after a row; no multiple of a half is added to it where all keys are exact."""
    return mix(answer, target) % 10007 / 16384


class Pool:
    """Keys and their marks [P, C, 2] in place of a layer's pool."""

    def __init__(self, cells: np.ndarray):
        self.cells, self._deleted = cells, False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.cells.shape

    @property
    def size(self) -> int:
        return self.cells.size

    @property
    def dtype(self) -> np.dtype:
        return self.cells.dtype

    def is_deleted(self) -> bool:
        return self._deleted

    def donated(self) -> Pool:
        """What a call makes of the pool, which is lost."""
        assert not self._deleted, "a donated pool was used again"
        self._deleted = True
        return Pool(self.cells.copy())


class PretendEntry:
    """In place of a compiled entry."""

    def __init__(self, ir: ModelIR, entry: Entry, hook: Callable[[str], None]):
        self._ir, self.entry, self._hook = ir, entry, hook
        spec = ir.spec
        kinds = [spec.windows.index(spec.window_of(layer)) for layer in range(spec.layers)]
        self._layers = [kinds.index(kind) for kind in range(len(spec.windows))]

    def __call__(self, params, pages, batch):
        self._hook("before a step")
        pages = tuple(pool.donated() for pool in pages)
        self._hook("in a step")
        out = self._decode(pages, batch) if self.entry.name == "decode" else self._step(pages, batch)
        self._hook("after a step")
        return out, pages

    def _row(self, pages, pages_Y, cell: int, table_YM, position: int, token: int, generated: bool):
        """Writes a row's key; returns its answer, and whether a marked key was seen."""
        sums, marked = [], generated
        size = self._ir.profile.page_size
        for kind, window in enumerate(self._ir.spec.windows):
            cells = pages[self._layers[kind]].cells
            first = max(position - window + 1, 0) if window else 0
            at = np.arange(first, position)
            seen = cells[table_YM[kind][at // size], at % size]
            key = mix(int(seen[-1, 0]) if position else 0, token, position)  # windows are at least 2
            marked |= bool(seen[:, 1].any())
            cells[pages_Y[kind], cell] = key, marked
            sums.append((int(seen[:, 0].sum(dtype=np.uint64)) + key) & MASK)
        return mix(*sums), marked

    def _step(self, pages, batch):
        rows = batch.rows if self.entry.name == "step" else batch
        answers, marks = [0] * self.entry.rows, [False] * self.entry.rows
        for row in np.flatnonzero(rows.sequence_T >= 0):
            table = rows.page_table_YBM[:, rows.sequence_T[row]]
            answers[row], marks[row] = self._row(
                pages,
                rows.page_YT[:, row],
                int(rows.cell_T[row]),
                table,
                int(rows.position_T[row]),
                int(rows.token_T[row]),
                False,
            )
        greedy = np.array([greedy_of(answer) for answer in answers], np.int32)
        if self.entry.name == "logits":
            return np.eye(VOCAB, dtype=np.float32)[greedy]
        nll = np.zeros(self.entry.rows, np.float32)
        for row in range(int(batch.first_row), int(batch.stop_row)):
            nll[row] = nll_of(answers[row], int(batch.target_T[row])) + marks[row]
        return nll, greedy, np.eye(VOCAB, dtype=np.float32)[greedy[batch.logit_row_Q]]

    def _decode(self, pages, batch):
        chosen, nll = np.zeros(batch.token_AB.shape, np.int32), np.zeros(batch.token_AB.shape, np.float32)
        token = turn = 0
        for turn in range(int(batch.turns)):
            token = int(batch.token_AB[turn, 0]) if turn < batch.given else token
            position = int(batch.position_AB[turn, 0])
            generated = batch.role_B[0] == DECODE_ROLE
            table = batch.page_table_YBM[:, 0]
            cell = int(batch.cell_AB[turn, 0])
            answer, mark = self._row(
                pages, batch.page_AYB[turn, :, 0], cell, table, position, token, generated
            )
            token = greedy_of(answer)
            target = int(batch.target_AB[turn, 0])
            chosen[turn] = token
            nll[turn] = nll_of(answer, token if target < 0 else target) + mark
            if turn + 1 >= batch.given and token in batch.stop_token_S.tolist():
                break
        return chosen, nll, np.int32(turn + 1)


@contextlib.contextmanager
def pretending(monkeypatch, hook: Callable[[str], None] = lambda where: None) -> Iterator[None]:
    """Sessions made inside compile nothing and run on pretended pages.

    `hook` is called with the name of each place where something may fail.
    """

    def grow_pages(pages, shapes, device):
        hook("before growth")
        out = []
        for pool, shape in zip(pages, shapes, strict=True):
            cells = np.zeros((*shape.shape[:2], 2), np.uint64)
            cells[: len(pool.cells)] = pool.cells
            out.append(Pool(cells))
        hook("after growth")
        return tuple(out)

    def copy_between_pages(pages, kinds, copies, device):
        hook("before a copy")
        pages = tuple(pool.donated() for pool in pages)
        for pool, kind in zip(pages, kinds, strict=True):
            for source, target in copies[kind]:
                pool.cells[target] = pool.cells[source]
        hook("after a copy")
        return pages

    def zeros(shape, dtype, device):
        hook("new pages")
        return Pool(np.zeros((*shape[:2], 2), np.uint64))

    graphs = types.SimpleNamespace(compile=lambda ir, entry, device: PretendEntry(ir, entry, hook))
    with monkeypatch.context() as patch:
        patch.setattr(pools, "grow_pages", grow_pages)
        patch.setattr(pools, "copy_between_pages", copy_between_pages)
        patch.setattr(pools, "jnp", types.SimpleNamespace(zeros=zeros))
        patch.setattr(entries, "GRAPHS", graphs)
        patch.setattr(runner, "load_params", lambda *args: {})
        yield
