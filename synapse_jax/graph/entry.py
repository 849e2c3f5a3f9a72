"""Entries: the few shapes in which a model is compiled, and the arguments of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import ShapeDtypeStruct as Abstract

from synapse_jax.dims import DECODE_TOKENS, ROW_LADDER, capacity_rung, row_bucket
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.kv.kinds import cache_kinds, step_rows, step_span
from synapse_jax.kv.pages import abstract_pages
from synapse_jax.ops.dtypes import weight_dtype
from synapse_jax.ops.sampling import SamplerRows
from synapse_jax.spec.compressed import Compressed
from synapse_jax.spec.runtime import RuntimeProfile

Array = Any
"""An array of the device or the host, or an abstract shape: the fields below are all three in turn."""

LOGIT_ROWS = 8
"""Q: rows for which a step returns logits. Not one: a one-row product has other bits (DESIGN rule 7)."""
STOP_TOKENS = 32
"""Stop tokens that a decode call watches for; unused places hold −1."""

READY = (("step", ROW_LADDER[0]), ("step", ROW_LADDER[-1]), ("decode", 1))
"""(entry, rows) that a session compiles at load, at the first capacity (`fitting`)."""

ENTRY_NAMES = ("step", "logits", "decode", "sample", "choose")

PROMPT_ROLE, DECODE_ROLE = 0, 1
"""Roles of a row: an argument, never inferred from a row count."""


@dataclasses.dataclass(frozen=True, order=True)
class Entry:
    """One way into a model's graph.

    `step` evaluates rows and returns, where asked, NLL and greedy token of a range of them and the logits of
    a few: it serves prompts and scoring alike. `logits` returns the logits of all its rows; it may have one
    row, which then has the role of a token that is generated. `decode`
    evaluates up to A tokens a sequence, one after the other, feeding each greedy token back in; `sample`
    does the same with tokens that are drawn. `choose` draws from logits that a step has returned.
    """

    name: str
    rows: int
    """T, rows in a step; for `decode`, `sample` and `choose` the sequences that advance together."""
    capacity: int
    """Positions in the pools of layers that see all keys."""
    sequences: int = 1
    """B, sequences that a step may hold."""

    def __post_init__(self):
        if self.name not in ENTRY_NAMES:
            raise ValueError(f"there is no entry {self.name!r}")
        one_row = self.name not in ("step", "logits")
        if one_row and self.rows != self.sequences:
            raise ValueError(
                f"{self.name} takes one row a sequence, not {self.rows} rows of {self.sequences}"
            )
        if not one_row and self.rows not in (*ROW_LADDER, *((1,) if self.name == "logits" else ())):
            raise ValueError(f"{self.rows} rows are not on the row ladder {ROW_LADDER}")

    def summary(self) -> dict[str, Any]:
        """The part of a record that names the entry."""
        return {"entry": self.name, "rows": self.rows, "capacity": self.capacity}

    def __str__(self) -> str:
        several = f" sequences={self.sequences}" if 1 < self.sequences < self.rows else ""
        return f"{self.name} rows={self.rows} capacity={self.capacity}{several}"


def entry_for(ir: ModelIR, name: str, rows: int, capacity: int | None = None) -> Entry:
    """An entry of a model; the capacity is the first rung of its ladder if none is given.

    Raises:
        ValueError: rows off the row ladder, or a capacity off the capacity ladder.
    """
    profile = ir.profile
    assert profile.context is not None
    wanted = min(capacity or 1, profile.context)
    rung = capacity_rung(wanted, profile.context, profile.page_size)
    if capacity not in (None, rung):
        raise ValueError(f"capacity {capacity} is not on the capacity ladder; {rung} is")
    return Entry(name, rows, rung)


def fitting(profile: RuntimeProfile, ready: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """(entry, rows) pairs with no more rows than a step may have under a profile, each once.

    Where steps end at pages, the tail of any work may need either size of a step: both are there.
    """
    most = row_bucket(step_rows(profile))
    pairs = [(name, min(rows, most)) for name, rows in ready]
    if step_span(profile) and any(name == "step" for name, _ in pairs):
        pairs += [("step", ROW_LADDER[0]), ("step", most)]
    return list(dict.fromkeys(pairs))


class Rows(NamedTuple):
    """The rows of a step, packed over its sequences, padding at the end. The whole batch of `logits`."""

    token_T: Array
    """int32 [T]; 0 in padding."""
    sequence_T: Array
    """int32 [T], index into the page table; −1 in padding."""
    position_T: Array
    """int32 [T], position in the sequence; −1 in padding."""
    role_T: Array
    """int32 [T], `PROMPT_ROLE` or `DECODE_ROLE`. Dense attention treats both alike."""
    cos_ZTR: Array
    """float32 [Z, T, R], rows of each RoPE table."""
    sin_ZTR: Array
    """float32 [Z, T, R]."""
    page_YT: Array
    """int32 [Y, T], by kind of layer, the page that the row's key and value are written to; P (no page) in
    padding."""
    cell_T: Array
    """int32 [T], the position within that page."""
    page_table_YBM: Array
    """int32 [Y, B, M], by kind of layer, pages of each sequence in order; unused places hold 0 and are not
    read, unused sequences repeat the first."""
    to_midpoint: tuple[Array, Array] | None = None
    """float32 [b, R] twice, cosines and sines that turn the keys of a block to its midpoint; None where no
    layer compresses."""


class StepBatch(NamedTuple):
    """Arguments of `step`."""

    rows: Rows
    target_T: Array
    """int32 [T], the token whose NLL a row gives."""
    first_row: Array
    """int32, first row that is scored."""
    stop_row: Array
    """int32, one past the last row that is scored; at most `first_row` scores none."""
    logit_row_Q: Array
    """int32 [8], the rows whose logits are returned."""
    wants_logits: Array
    """bool, whether they are computed; zeros if not."""


class DecodeBatch(NamedTuple):
    """Arguments of `decode`: like a step for each of A turns, evaluated until `turns` or a stop token."""

    token_AB: Array
    """int32 [A, B], given tokens; from turn `given` on, the turn before's greedy token is evaluated."""
    given: Array
    """int32, turns whose token is given; at least 1."""
    turns: Array
    """int32, most turns to evaluate, 1 … A."""
    target_AB: Array
    """int32 [A, B], tokens whose NLL is returned; −1 for the greedy token's own."""
    stop_token_S: Array
    """int32 [32], tokens that end a sequence; −1 in unused places."""
    position_AB: Array
    """int32 [A, B]."""
    role_B: Array
    """int32 [B]."""
    cos_AZBR: Array
    """float32 [A, Z, B, R]."""
    sin_AZBR: Array
    """float32 [A, Z, B, R]."""
    page_AYB: Array
    """int32 [A, Y, B]."""
    cell_AB: Array
    """int32 [A, B]."""
    page_table_YBM: Array
    """int32 [Y, B, M]."""
    to_midpoint: tuple[Array, Array] | None = None
    """float32 [b, R] twice, as in `Rows`."""


class SampleBatch(NamedTuple):
    """Arguments of `sample`: those of `decode`, and how tokens are drawn."""

    decode: DecodeBatch
    seen_BV: Array
    """bool [B, V], tokens that the repetition penalty applies to; those drawn are added."""
    sampler: SamplerRows
    """The settings of each sequence."""


class ChooseBatch(NamedTuple):
    """Arguments of `choose`."""

    logits_BV: Array
    """float32 [B, V]."""
    seen_BV: Array
    """bool [B, V]."""
    position_B: Array
    """int32 [B], the position that the drawn token will have."""
    sampler: SamplerRows
    """The settings of each sequence."""


Batch = StepBatch | Rows | DecodeBatch | SampleBatch | ChooseBatch


def abstract_params(ir: ModelIR) -> dict[str, Abstract]:
    """Shapes and types of the weight arguments, by full name."""
    return {
        weight.name: Abstract(weight.shape, weight_dtype(weight.shape, ir.profile.precision, weight.layers))
        for weight in ir.weights()
    }


def abstract_batch(ir: ModelIR, entry: Entry) -> Batch:
    """Shapes and types of the batch argument of an entry."""
    tables, pairs = len(ir.rope_tables), ir.spec.rotary_size // 2
    sequences, kinds = entry.sequences, len(cache_kinds(ir.spec, ir.profile))
    to_midpoint = _to_midpoint(ir)
    table = _i32(kinds, sequences, entry.capacity // ir.profile.page_size)
    vocabulary = (sequences, ir.spec.vocab_size)
    seen = Abstract(vocabulary, jnp.bool_)
    if entry.name == "choose":
        return ChooseBatch(Abstract(vocabulary, jnp.float32), seen, _i32(sequences), _sampler(sequences))
    if entry.name in ("decode", "sample"):
        turn = _i32(DECODE_TOKENS, sequences)
        angle = Abstract((DECODE_TOKENS, tables, sequences, pairs), jnp.float32)
        decode = DecodeBatch(
            token_AB=turn,
            given=_i32(),
            turns=_i32(),
            target_AB=turn,
            stop_token_S=_i32(STOP_TOKENS),
            position_AB=turn,
            role_B=_i32(sequences),
            cos_AZBR=angle,
            sin_AZBR=angle,
            page_AYB=_i32(DECODE_TOKENS, kinds, sequences),
            cell_AB=turn,
            page_table_YBM=table,
            to_midpoint=to_midpoint,
        )
        return decode if entry.name == "decode" else SampleBatch(decode, seen, _sampler(sequences))
    row, angle = _i32(entry.rows), Abstract((tables, entry.rows, pairs), jnp.float32)
    rows = Rows(
        token_T=row,
        sequence_T=row,
        position_T=row,
        role_T=row,
        cos_ZTR=angle,
        sin_ZTR=angle,
        page_YT=_i32(kinds, entry.rows),
        cell_T=row,
        page_table_YBM=table,
        to_midpoint=to_midpoint,
    )
    if entry.name == "logits":
        return rows
    return StepBatch(
        rows,
        target_T=row,
        first_row=_i32(),
        stop_row=_i32(),
        logit_row_Q=_i32(LOGIT_ROWS),
        wants_logits=Abstract((), jnp.bool_),
    )


def abstract_arguments(ir: ModelIR, entry: Entry) -> tuple:
    """(params, pages, batch) of an entry, as shapes and types; `choose` has neither params nor pages."""
    if entry.name == "choose":
        return {}, (), abstract_batch(ir, entry)
    return abstract_params(ir), abstract_pages(ir.spec, ir.profile, entry.capacity), abstract_batch(ir, entry)


def _to_midpoint(ir: ModelIR) -> tuple[Abstract, Abstract] | None:
    policy = ir.profile.policy
    if not isinstance(policy, Compressed):
        return None
    angle = Abstract((policy.block, ir.spec.rotary_size // 2), jnp.float32)
    return angle, angle


def _sampler(sequences: int) -> SamplerRows:
    number = Abstract((sequences,), jnp.float32)
    seed = Abstract((sequences, 2), jnp.uint32)
    return SamplerRows(seed, number, _i32(sequences), number, number, number)


def _i32(*shape: int) -> Abstract:
    return Abstract(shape, jnp.int32)
