"""How work is cut into steps, and how much of the context it needs."""

from __future__ import annotations

from collections.abc import Iterator

from synapse_jax.dims import DECODE_TOKENS, ROW_LADDER, row_bucket
from synapse_jax.errors import InputError
from synapse_jax.spec.sampling import Sampling

SMALL_ROWS, LARGE_ROWS = ROW_LADDER[0], ROW_LADDER[-1]


def steps(total: int, rows: int, first: int = 0, span: int = 0) -> Iterator[tuple[int, int]]:
    """(first, count) of the steps that cover positions `first` … `total` − 1 with `rows` each.

    The tail runs as 32-row steps unless it fills more than half of a full step, so that only two row counts
    are compiled for one kind of work. With one row a step, a device call takes up to A of them. Steps end at
    multiples of `span`, where that is not 0.
    """
    rows = DECODE_TOKENS if rows == 1 else rows
    full = min(rows, span or rows)
    while first < total:
        count = step_room(first, min(rows, total - first), span)
        if SMALL_ROWS < full and 2 * count <= full:
            count = min(count, SMALL_ROWS)
        yield first, count
        first += count


def step_room(first: int, most: int, span: int) -> int:
    """Rows that a step from `first` on may have: up to `most`, and to the next multiple of `span`."""
    return min(most, span - first % span) if span else most


def bucket(count: int, largest: int) -> int:
    """Row count of the entry that evaluates a step of `count` rows: 32, or the work's own."""
    return SMALL_ROWS if count <= SMALL_ROWS else largest


def prompt_entries(positions: int) -> list[tuple[str, int]]:
    """(entry, rows) pairs that evaluate so many positions in full-size steps."""
    return _step_entries(positions, LARGE_ROWS, LARGE_ROWS)


def scoring_entries(positions: int, rows: int, prompt: int = 0) -> list[tuple[str, int]]:
    """(entry, rows) pairs that score `positions` positions with `rows` a step; where that is one, `prompt` of
    them are evaluated in full-size steps first."""
    if rows == 1:
        return [*prompt_entries(prompt), ("decode", 1)]
    return _step_entries(positions, rows, row_bucket(rows))


def generation_entries(
    tokens: int, max_new_tokens: int, sampling: Sampling, logprobs: bool
) -> list[tuple[str, int]]:
    """(entry, rows) pairs that evaluate a prompt and continue it."""
    entries = prompt_entries(tokens)
    if max_new_tokens and (logprobs or not sampling.is_greedy):
        entries.append(("choose", 1))
    if max_new_tokens > 1:
        entries.append(("decode" if sampling.is_greedy else "sample", 1))
    return entries


def _step_entries(total: int, rows: int, largest: int) -> list[tuple[str, int]]:
    return [("step", size) for size in sorted({bucket(count, largest) for _, count in steps(total, rows)})]


def positions_needed(prompt_tokens: int, max_new_tokens: int, context: int) -> int:
    """Positions that a generation evaluates: the last new token needs none.

    Raises:
        InputError: more than the context has; both numbers are named.
    """
    if max_new_tokens < 0:
        raise InputError(f"max_new_tokens {max_new_tokens} is negative")
    needed = prompt_tokens + max(max_new_tokens - 1, 0)
    if needed > context:
        raise InputError(
            f"a prompt of {prompt_tokens} tokens and {max_new_tokens} new ones need {needed} positions, "
            f"the context has {context}"
        )
    return needed
