"""What a quality run found: its cases as JSON values, and figures of each task, length and depth."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from synapse_jax.evals.controls.control import Evaluated
from synapse_jax.evals.quality import Answer, CaseResult
from synapse_jax.evals.tasks.answers import MIXED, PARTIAL, RIGHT, WRONG, Verdict
from synapse_jax.evals.tasks.case import Case


def case_fields(result: CaseResult) -> dict[str, Any]:
    """A case with its answers, as JSON values."""
    case = result.case
    filler, longest = case.filler
    return {
        **dataclasses.asdict(case.name),
        "prompt_tokens": len(case.ids),
        "prompt_sha256": case.sha256,
        "answer_tokens": case.answer_tokens,
        "answers": list(case.answers),
        "decoys": list(case.decoys),
        "planted_at": list(case.planted),
        "planted_depth": case.depth,
        "filler_tokens": filler,
        "longest_sentence_tokens": longest,
        "ours": _answer_fields(result.ours),
        "control": None if result.control is None else _answer_fields(result.control),
        "identical": result.is_identical,
        "first_difference": result.first_difference,
        "margin": result.margin,
        "failed": result.failed,
        "control_failed_the_same_way": result.control_failed_the_same_way,
    }


def read_case(value: dict[str, Any], case: Case) -> CaseResult:
    """The result that `case_fields` has made JSON values of.

    Raises:
        ValueError: the values are not of this case.
        KeyError, TypeError: they are not of any.
    """
    control = None if value["control"] is None else _read_answer(value["control"])
    result = CaseResult(
        case, _read_answer(value["ours"]), control, value["first_difference"], value["margin"]
    )
    if case_fields(result) != value:
        raise ValueError("not of this case")
    return result


def cells(results: Sequence[CaseResult]) -> list[dict[str, Any]]:
    """Figures of each task, length and depth, in the order of the cases."""
    groups: dict[tuple, list[CaseResult]] = {}
    for result in results:
        name = result.case.name
        groups.setdefault((name.task, name.length, name.depth), []).append(result)
    return [
        {"task": task, "length": length, "depth": depth, **_cell(group)}
        for (task, length, depth), group in groups.items()
    ]


def agreement(results: Sequence[CaseResult]) -> dict[str, Any] | None:
    """How far the two engines agree; None where no control ran."""
    if any(result.control is None for result in results):
        return None
    same = sum(bool(result.is_identical) for result in results)
    failed = [result for result in results if result.failed]
    margins = [result.margin for result in results if result.margin is not None]
    return {
        "cases": len(results),
        "identical": same,
        "largest_margin": max(margins, default=None),
        "failed": len(failed),
        "control_failed_the_same_way": sum(bool(r.control_failed_the_same_way) for r in failed),
    }


def _cell(results: Sequence[CaseResult]) -> dict[str, Any]:
    verdicts = [result.ours.verdict for result in results]
    theirs = [result.control.verdict for result in results if result.control is not None]
    counts = {name: sum(v.verdict == name for v in verdicts) for name in (RIGHT, MIXED, PARTIAL, WRONG)}
    return {
        "cases": len(results),
        **counts,
        "score": statistics.fmean(verdict.score for verdict in verdicts),
        "ruler": statistics.fmean(verdict.ruler for verdict in verdicts),
        "control_score": statistics.fmean(verdict.score for verdict in theirs) if theirs else None,
        "identical": sum(bool(result.is_identical) for result in results) if theirs else None,
    }


def _answer_fields(answer: Answer) -> dict[str, Any]:
    verdict = dataclasses.asdict(answer.verdict)
    return {
        "text": answer.text,
        "token_ids": list(answer.token_ids),
        "stopped": answer.stopped,
        "evaluated_count": answer.evaluated.count,
        "evaluated_sha256": answer.evaluated.sha256,
        "seconds": answer.seconds,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in verdict.items()},
    }


def _read_answer(value: dict[str, Any]) -> Answer:
    parts: dict[str, Any] = {field.name: value[field.name] for field in dataclasses.fields(Verdict)}
    verdict: dict[str, Any] = {
        name: tuple(part) if isinstance(part, list) else part for name, part in parts.items()
    }
    evaluated = Evaluated(value["evaluated_count"], value["evaluated_sha256"])
    return Answer(
        value["text"],
        tuple(value["token_ids"]),
        value["stopped"],
        evaluated,
        value["seconds"],
        Verdict(**verdict),
    )
