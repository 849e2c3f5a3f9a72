"""Evaluating the main sequence of a runner's cache, step by step: prompts, scores, logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from synapse_jax.dims import MAX_STEP_ROWS, row_bucket
from synapse_jax.graph.entry import DECODE_ROLE, PROMPT_ROLE
from synapse_jax.kv.kinds import step_rows
from synapse_jax.runtime import packing
from synapse_jax.runtime.plan import SMALL_ROWS
from synapse_jax.runtime.prefix import NOTHING, Reused
from synapse_jax.runtime.runner import Progress, Runner


def evaluate_tokens(
    runner: Runner,
    tokens: np.ndarray,
    start: int,
    reused: Reused,
    report: Callable[[int], None],
    *,
    wants_logits: bool = True,
) -> np.ndarray:
    """Evaluates tokens, int32 [n], at positions start … start + n − 1.

    Args:
        runner: its cache holds the positions before.
        tokens: int32 [n].
        start: position of the first.
        reused: what the evaluation began with.
        report: called with the end of every step.
        wants_logits: whether the head is run for the last token.

    Returns:
        Logits after the last token, float32 [V], or zeros.

    Raises:
        RunError: logits that are not finite.
    """
    logits_V, stop = np.zeros(runner.spec.vocab_size, np.float32), start + len(tokens)
    for first, count in runner.steps(stop, MAX_STEP_ROWS, start):
        entry = runner.step_entry(count)
        rows = runner.rows(entry, tokens[first - start : first - start + count], first)
        is_last = wants_logits and first + count == stop
        batch = packing.step_batch(rows, logit_rows=[count - 1] if is_last else [])
        _, _, logits_QV = runner.call(entry, batch)
        runner.advance(first, count, reused)
        report(first + count)
        if is_last:
            logits_V = np.asarray(logits_QV)[0]
            runner.check_finite(logits_V[np.argmax(logits_V), None], stop)
    return logits_V


def score_tokens(
    runner: Runner,
    ids: np.ndarray,
    start: int,
    rows: int,
    reused: Reused,
    nll: np.ndarray,
    greedy: np.ndarray,
    progress: Progress | None,
) -> None:
    """Evaluates all of `ids`, int32 [n], but the last token and what is reused, and fills in scores.

    Args:
        runner: its cache holds what is reused.
        ids: the sequence.
        start: position of the first entry of `nll` and `greedy`.
        rows: tokens a step; 1 if the attention policy is approximate. The rows of scores are then of the
            decode role, and those before them are a prompt.
        reused: what is not evaluated again; the scores of its positions are there already.
        nll: float32 [n − start].
        greedy: int32 [n − start].
        progress: called with (positions evaluated, positions to evaluate).

    Raises:
        RunError: a NaN or infinite NLL.
    """
    evaluate, begin = (_score_one_by_one if rows == 1 else _score_step), reused.tokens
    if runner.profile.policy.is_decode_only:
        assert rows == 1
        evaluate, begin = _score_as_decoded, start - 1
        report = (lambda done: None) if progress is None else (lambda done: progress(done, len(ids) - 1))
        evaluate_tokens(runner, ids[reused.tokens : begin], reused.tokens, reused, report, wants_logits=False)
        if reused.is_on:
            runner.cache.take_snapshot(begin)
    for first, count in runner.steps(len(ids) - 1, rows, begin):
        skip = min(max(start - 1 - first, 0), count)
        step_nll, step_greedy = evaluate(runner, ids, first, count, skip, rows)
        if skip < count:
            here = slice(first + skip + 1 - start, first + count + 1 - start)
            nll[here], greedy[here] = step_nll[skip:count], step_greedy[skip:count]
            runner.check_finite(nll[here], first + skip + 1)
        runner.advance(first, count, reused)
        if progress:
            progress(first + count, len(ids) - 1)


def read_logits(runner: Runner, ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Logits [len(wanted), V] after some positions of `ids`, int32 [n], evaluated from position 0.

    Raises:
        RunError: logits that are not finite.
    """
    out = np.zeros((len(wanted), runner.spec.vocab_size), np.float32)
    evaluated = int(wanted.max()) + 1
    for first, count in runner.steps(evaluated, SMALL_ROWS):
        here = np.flatnonzero((wanted >= first) & (wanted < first + count))
        entry = runner.entry("logits" if here.size else "step", SMALL_ROWS)
        rows = runner.rows(entry, ids[first : first + count], first)
        if here.size:
            out[here] = np.asarray(runner.call(entry, rows))[wanted[here] - first]
        else:
            runner.call(entry, packing.step_batch(rows))
        runner.advance(first, count)
    # The last row evaluated sees every key: if a number anywhere is not finite, it is not either.
    runner.check_finite(out[wanted.argmax()].max(keepdims=True), evaluated)
    return out


def read_logit_blocks(
    runner: Runner, ids: np.ndarray, start: int, rows: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Logits after the positions from `start` on of `ids`, int32 [n], a block of at most `rows` at a time.

    Yields:
        (position that the first row predicts, float32 [r, V]).

    Raises:
        RunError: logits that are not finite.
    """
    evaluate_tokens(runner, ids[:start], 0, NOTHING, lambda done: None, wants_logits=False)
    read = _logits_as_decoded if runner.profile.policy.is_decode_only else _logits_step
    for first in range(start, len(ids), rows):
        blocks, done, stop = [], first, min(first + rows, len(ids))
        while done < stop:
            count = runner.room(done, stop - done)
            blocks.append(read(runner, ids[done : done + count], done, rows))
            runner.check_finite(blocks[-1].max(-1), done + 1)
            done += count
        yield first + 1, np.concatenate(blocks) if len(blocks) > 1 else blocks[0]


def _logits_step(runner: Runner, tokens: np.ndarray, first: int, rows: int) -> np.ndarray:
    """Logits after each of the tokens, at most `rows`, as one step of a prompt."""
    entry = runner.entry("logits", min(rows, row_bucket(step_rows(runner.profile))))
    logits_TV = runner.call(entry, runner.rows(entry, tokens, first))
    runner.advance(first, len(tokens))
    return np.asarray(logits_TV)[: len(tokens)]


def _logits_as_decoded(runner: Runner, tokens: np.ndarray, first: int, rows: int) -> np.ndarray:
    """As `_logits_step`, a row at a time in the decode role."""
    entry = runner.entry("logits", 1)
    logits_RV = np.zeros((len(tokens), runner.spec.vocab_size), np.float32)
    for row in range(len(tokens)):
        batch = runner.rows(entry, tokens[row : row + 1], first + row, DECODE_ROLE)
        logits_RV[row] = np.asarray(runner.call(entry, batch))[0]
        runner.advance(first + row, 1)
    return logits_RV


def _score_step(runner: Runner, ids: np.ndarray, first: int, count: int, skip: int, rows: int):
    """NLL and greedy tokens of a step; the first `skip` rows are evaluated and not scored."""
    entry = runner.step_entry(count, rows)
    targets = ids[first + skip + 1 : first + count + 1]
    batch = packing.step_batch(runner.rows(entry, ids[first : first + count], first), targets, skip)
    nll, greedy, _ = runner.call(entry, batch)
    return np.asarray(nll), np.asarray(greedy)


def _score_as_decoded(runner: Runner, ids: np.ndarray, first: int, count: int, skip: int, rows: int):
    """As `_score_one_by_one`, in the decode role: attention as it is when these tokens are generated."""
    return _score_one_by_one(runner, ids, first, count, skip, rows, DECODE_ROLE)


def _score_one_by_one(
    runner: Runner, ids: np.ndarray, first: int, count: int, skip: int, rows: int, role: int = PROMPT_ROLE
):
    """As `_score_step`, through the one-row entry; the rows stay prompt tokens unless `role` says more."""
    entry = runner.entry("decode", 1)
    segment = runner.segment(ids[first : first + count], first, role=role)
    targets = ids[first + 1 : first + count + 1]
    batch = packing.decode_batch(entry, runner.ir, segment, turns=count, targets=targets)
    greedy, nll, _ = runner.call(entry, batch)
    return np.asarray(nll)[:, 0], np.asarray(greedy)[:, 0]
