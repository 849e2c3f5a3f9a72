"""Host side of a step: rows of several sequences packed into the arrays that an entry takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from synapse_jax.dims import DECODE_TOKENS
from synapse_jax.graph.entry import (
    LOGIT_ROWS,
    PROMPT_ROLE,
    STOP_TOKENS,
    ChooseBatch,
    DecodeBatch,
    Entry,
    Rows,
    SampleBatch,
    StepBatch,
)
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.kv.kinds import cache_kinds
from synapse_jax.kv.table import PageTable, PooledTable
from synapse_jax.ops.sampling import SamplerRows
from synapse_jax.spec.compressed import Compressed
from synapse_jax.spec.rope_table import turn_rows
from synapse_jax.spec.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class Segment:
    """Consecutive tokens of one sequence."""

    tokens: np.ndarray
    """int32 [n]."""
    start: int
    """Position of the first token."""
    tables: Sequence[PageTable]
    """The sequence's page table for each kind of layer, which hold these positions."""
    role: int = PROMPT_ROLE


def pack_rows(entry: Entry, ir: ModelIR, segments: Sequence[Segment]) -> Rows:
    """Packs segments, one a sequence, in order; the rest of the rows is padding.

    Raises:
        ValueError: more segments or rows than the entry holds, or a position without a page.
    """
    if len(segments) > entry.sequences or sum(len(s.tokens) for s in segments) > entry.rows:
        raise ValueError(f"{len(segments)} segments do not fit in {entry} with {entry.sequences} sequences")
    token, role = np.zeros(entry.rows, np.int32), np.zeros(entry.rows, np.int32)
    sequence, position = np.full(entry.rows, -1, np.int32), np.full(entry.rows, -1, np.int32)
    page, cell = _no_pages(entry, ir, entry.rows), np.zeros(entry.rows, np.int32)
    row = 0
    for index, segment in enumerate(segments):
        here = slice(row, row + len(segment.tokens))
        row = here.stop
        token[here], role[here], sequence[here] = segment.tokens, segment.role, index
        position[here] = np.arange(segment.start, segment.start + len(segment.tokens))
        page[:, here], cell[here] = _cells(entry, ir, segment, position[here])
    cos, sin = _angles(ir, position)
    table = _page_table(entry, ir, segments)
    return Rows(token, sequence, position, role, cos, sin, page, cell, table, _to_midpoint(ir))


def step_batch(
    rows: Rows, targets: np.ndarray | None = None, first_row: int = 0, logit_rows: Sequence[int] = ()
) -> StepBatch:
    """A step that scores rows from `first_row` on against `targets`, int32 [n], and gives logits of a few.

    Places of the logits that nobody asks for repeat row 0.
    """
    target = np.zeros(len(rows.token_T), np.int32)
    if targets is None or not len(targets):
        first_row = stop_row = 0  # an empty range at 0 starts no block of logits
    else:
        stop_row = first_row + len(targets)
        target[first_row:stop_row] = targets
    logit_row = np.zeros(LOGIT_ROWS, np.int32)
    logit_row[: len(logit_rows)] = logit_rows
    return StepBatch(
        rows, target, np.int32(first_row), np.int32(stop_row), logit_row, np.bool_(len(logit_rows) > 0)
    )


def decode_batch(
    entry: Entry,
    ir: ModelIR,
    segment: Segment,
    *,
    turns: int,
    targets: np.ndarray | None = None,
    stop_tokens: Sequence[int] = (),
) -> DecodeBatch:
    """A decode call of one sequence: first the segment's tokens, then greedy ones, `turns` in all.

    Args:
        entry: a decode entry of one sequence.
        ir: the model.
        segment: the given tokens, at least one, at most `turns`.
        turns: tokens to evaluate, at most A.
        targets: int32 [turns] tokens whose NLL is returned, or None for the greedy tokens' own.
        stop_tokens: at most 32 tokens that end the call.
    """
    if not 1 <= len(segment.tokens) <= turns <= DECODE_TOKENS or len(stop_tokens) > STOP_TOKENS:
        raise ValueError(f"{len(segment.tokens)} given tokens, {turns} turns, {len(stop_tokens)} stop tokens")
    position = np.full(DECODE_TOKENS, -1, np.int32)
    position[:turns] = np.arange(segment.start, segment.start + turns)
    page, cell = _no_pages(entry, ir, DECODE_TOKENS), np.zeros(DECODE_TOKENS, np.int32)
    page[:, :turns], cell[:turns] = _cells(entry, ir, segment, position[:turns])
    token, target = np.zeros(DECODE_TOKENS, np.int32), np.full(DECODE_TOKENS, -1, np.int32)
    token[: len(segment.tokens)] = segment.tokens
    if targets is not None:
        target[:turns] = targets
    stop = np.full(STOP_TOKENS, -1, np.int32)
    stop[: len(stop_tokens)] = list(stop_tokens)
    cos, sin = _angles(ir, position)
    return DecodeBatch(
        token[:, None],
        np.int32(len(segment.tokens)),
        np.int32(turns),
        target[:, None],
        stop,
        position[:, None],
        np.full(1, segment.role, np.int32),
        cos.swapaxes(0, 1)[:, :, None],
        sin.swapaxes(0, 1)[:, :, None],
        page.T[:, :, None],
        cell[:, None],
        _page_table(entry, ir, [segment]),
        _to_midpoint(ir),
    )


def sample_batch(decode: DecodeBatch, seen_V: np.ndarray, sampling: Sampling) -> SampleBatch:
    """A decode call of one sequence whose tokens are drawn; `seen_V` bool [V] are those to be penalised."""
    return SampleBatch(decode, seen_V[None], _sampler_rows(sampling))


def choose_batch(logits_V: np.ndarray, seen_V: np.ndarray, position: int, sampling: Sampling) -> ChooseBatch:
    """Draws the token of a position from logits, float32 [V]."""
    return ChooseBatch(logits_V[None], seen_V[None], np.full(1, position, np.int32), _sampler_rows(sampling))


def _sampler_rows(sampling: Sampling) -> SamplerRows:
    numbers = (sampling.top_p, sampling.min_p, sampling.repetition_penalty)
    return SamplerRows(
        np.array([[sampling.seed >> 32, sampling.seed & 0xFFFFFFFF]], np.uint32),
        np.full(1, sampling.temperature, np.float32),
        np.full(1, sampling.top_k, np.int32),
        *(np.full(1, number, np.float32) for number in numbers),
    )


def _page_table(entry: Entry, ir: ModelIR, segments: Sequence[Segment]) -> np.ndarray:
    """int32 [Y, B, M]; places without a sequence repeat the first one's."""
    places = entry.capacity // ir.profile.page_size
    tables = [[table.row(places) for table in segment.tables] for segment in segments]
    tables += [tables[0]] * (entry.sequences - len(segments))
    return np.array(tables, np.int32).swapaxes(0, 1)


def _no_pages(entry: Entry, ir: ModelIR, rows: int) -> np.ndarray:
    """int32 [Y, rows] that names no page anywhere."""
    kinds = cache_kinds(ir.spec, ir.profile)
    pools = [kind.pages(entry.capacity, ir.profile.page_size) for kind in kinds]
    return np.repeat(np.array(pools, np.int32)[:, None], rows, axis=1)


def _cells(
    entry: Entry, ir: ModelIR, segment: Segment, position: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Page [Y, n] and cell [n] of each position, checked: on the device a wrong index goes unnoticed."""
    index, cell = np.divmod(position, ir.profile.page_size)
    tables = [table for table in segment.tables if not isinstance(table, PooledTable)]
    for table in tables:
        if len(index) and not table.first <= index[0] <= index[-1] < table.end:
            raise ValueError(
                f"positions {position[0]} … {position[-1]} are not within pages {table.first} … "
                f"{table.end - 1} of {ir.profile.page_size} positions"
            )
    places = entry.capacity // ir.profile.page_size
    # Pooled blocks are written where a block is, not where a row is: the graph finds their cells itself.
    pages = [
        np.zeros_like(index) if isinstance(table, PooledTable) else table.row(places)[index]
        for table in segment.tables
    ]
    return np.stack(pages), cell


def _to_midpoint(ir: ModelIR) -> tuple[np.ndarray, np.ndarray] | None:
    """The angles that pooled blocks are turned by, where there are any.

    A block's midpoint lies among its keys, so it is always within the RoPE table.
    """
    policy = ir.profile.policy
    return turn_rows(ir.rope_tables[0], policy.block) if isinstance(policy, Compressed) else None


def _angles(ir: ModelIR, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin rows [Z, n, R]; padding takes those of position 0."""
    return ir.angle_rows(np.maximum(position, 0))
