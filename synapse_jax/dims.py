"""Letters, named array types and the shape ladders that keep compiled graphs few.

    B sequences        T rows in a step     S key positions     D width          F FFN width
    N query heads      K KV heads           G = N / K           H head size      V vocabulary
    L layers           P pages in a pool    M pages a sequence  C positions a page
    A tokens a decode call may evaluate     Q rows whose logits a step returns     Z RoPE tables
    Y kinds of layers by window: each has a page table of its own     X pages copied or touched at once
    R rotary pairs (cos_TR), else the rows of a block (logits_RV)     I, O inputs and outputs of a linear
    E positions a selection page or a pooled block     J = C / E, selection pages in a page     U = M·J
    W heads that select for themselves: K, or N where each query head does

Local names carry their shape as a suffix: `q_TNH` is [T, N, H].
"""

from __future__ import annotations

ROW_LADDER = (32, 64, 128, 256, 512)
"""Row counts that a prefill or score step may have. All are at least 32, so that a row's bits do not
depend on its step (DESIGN rule 7); other sizes pad up."""

MAX_STEP_ROWS = ROW_LADDER[-1]
"""Most rows that one device call evaluates."""

DECODE_TOKENS = 16
"""A: most tokens that one call of the decode entry evaluates."""

CAPACITY_UNIT = 1024
"""Positions in the first rung of the capacity ladder."""

FORKS = 16
"""Sequences that one step may hold where many share a prefix."""

SNAPSHOTS = 2
"""Most prompt ends whose window pages are kept for prefix reuse."""

HEAD_BLOCK_ROWS = 128
"""Most rows of logits that exist at a time when scoring."""


def row_bucket(rows: int) -> int:
    """Smallest row count of the ladder that holds `rows`.

    Args:
        rows: rows to evaluate in one step, 1 to `MAX_STEP_ROWS`.

    Raises:
        ValueError: outside that range. Callers split longer inputs into steps.
    """
    if rows < 1:
        raise ValueError(f"a step of {rows} rows holds nothing")
    for bucket in ROW_LADDER:
        if rows <= bucket:
            return bucket
    raise ValueError(f"a step of {rows} rows is above the largest row bucket, {MAX_STEP_ROWS}")


def capacity_rung(positions: int, context: int, page_size: int) -> int:
    """Smallest capacity of the ladder that holds `positions`.

    The rungs are 1, 2, 3, 4, 6, 8, 12, 16, 24, … × 1,024 positions, cut off at the context
    rounded up to a page.

    Args:
        positions: positions to hold, at most `context`.
        context: most positions that the session accepts.
        page_size: positions a page.

    Raises:
        ValueError: `positions` is negative or above `context`.
    """
    if not 0 <= positions <= context:
        raise ValueError(f"{positions} positions do not fit in a context of {context}")
    limit = -(-context // page_size) * page_size
    power = 1
    while True:
        for rung in (power, power + power // 2) if power > 1 else (power,):
            if positions <= rung * CAPACITY_UNIT or rung * CAPACITY_UNIT >= limit:
                return min(rung * CAPACITY_UNIT, limit)
        power *= 2


def capacity_rungs(context: int, page_size: int) -> tuple[int, ...]:
    """All capacities of the ladder, ascending; arguments as in `capacity_rung`."""
    rungs = [capacity_rung(0, context, page_size)]
    while rungs[-1] < context:
        rungs.append(capacity_rung(rungs[-1] + 1, context, page_size))
    return tuple(rungs)
