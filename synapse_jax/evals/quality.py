"""Long-context answers: this engine's, and a control's, to the same prompts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from synapse_jax.errors import RunError
from synapse_jax.evals.controls.answer import answer_beside
from synapse_jax.evals.controls.control import Control, Evaluated, Evaluating, check_identity
from synapse_jax.evals.tasks.answers import Verdict, judge
from synapse_jax.evals.tasks.case import Case
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.runtime.plan import generation_entries
from synapse_jax.spec.sampling import GREEDY

if TYPE_CHECKING:  # what is asked for is checked without jax
    from synapse_jax.runtime.session import Progress, Session

OURS = "synapse"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one engine answered."""

    text: str
    """Its tokens as text; what is not UTF-8 is U+FFFD."""
    token_ids: tuple[int, ...]
    """Greedy tokens, without the stop token that ended them."""
    stopped: bool
    """Whether a stop token came before the budget was used."""
    evaluated: Evaluated
    """The prompt's tokens by the engine's own account."""
    seconds: float
    """Prompt and answer, without compiling."""
    verdict: Verdict
    """What it is worth."""


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """A case and its answers."""

    case: Case
    ours: Answer
    control: Answer | None
    """None where no control ran."""
    first_difference: int | None = None
    """Index of the first token of the answers that differs; None where none does, or no control ran."""
    margin: float | None = None
    """How far our token there lies below the control's, in the control's logits."""

    @property
    def is_identical(self) -> bool | None:
        """Whether both texts are the same; None where no control ran."""
        return None if self.control is None else self.control.text == self.ours.text

    @property
    def failed(self) -> bool:
        """Whether something that was asked for is missing."""
        return self.ours.verdict.score < 1

    @property
    def control_failed_the_same_way(self) -> bool | None:
        """Whether the control found the same and named the same others; None if we did not fail, or it did
        not run."""
        if self.control is None or not self.failed:
            return None
        ours, theirs = self.ours.verdict, self.control.verdict
        return (ours.found, ours.others) == (theirs.found, theirs.others)


def quality_entries(cases: Sequence[Case]) -> list[tuple[str, int]]:
    """(entry, rows) pairs that answering uses."""
    asked = {(len(case.ids), case.answer_tokens) for case in cases}
    return sorted({entry for pair in asked for entry in generation_entries(*pair, GREEDY, False)})


def positions(case: Case) -> int:
    """Positions that a case needs: the last token of an answer is not evaluated."""
    return len(case.ids) + case.answer_tokens - 1


def run_cases(
    session: Session,
    tokenizer: Tokenizer,
    cases: Sequence[Case],
    control: Control | None,
    *,
    done: int = 0,
    progress: Progress | None = None,
) -> Iterator[CaseResult]:
    """Answers cases in order, each engine with the same token IDs.

    Args:
        session: its context is at least the longest length.
        tokenizer: the model's.
        cases: all of a run.
        control: another engine, which answers each case after this one.
        done: first cases that an earlier run has answered.
        progress: called with (positions evaluated, positions to evaluate), of both engines.

    Yields:
        A result for each further case.

    Raises:
        InputError: an engine evaluated other tokens than the prompt, or has another vocabulary.
        RunError: a case that failed, by name.
    """
    report = progress or (lambda done, total: None)
    engines = 1 if control is None else 2
    whole, before = (engines * sum(map(positions, part)) for part in (cases, cases[:done]))
    report(before, whole)
    for case in cases[done:]:
        start = before
        try:
            ours = _answer(session, tokenizer, case, lambda now, _, start=start: report(start + now, whole))
            report(before + positions(case), whole)
            result = CaseResult(case, ours, None)
            if control is not None:
                theirs = before + positions(case)
                result = _with_control(
                    result,
                    tokenizer,
                    control,
                    session.spec.vocab_size,
                    lambda now, start=theirs: report(start + now, whole),
                )
        except RunError as error:
            raise RunError(f"{case.name}: {error}") from error
        before += engines * positions(case)
        report(before, whole)
        yield result


def _answer(session: Session, tokenizer: Tokenizer, case: Case, progress: Progress) -> Answer:
    compiled, started = session.compile_s, time.perf_counter()
    found = session.generate(case.ids, case.answer_tokens, progress=progress)
    seconds = time.perf_counter() - started - (session.compile_s - compiled)
    stopped = found.finish_reason == "stop"
    # All new tokens are among those that the steps evaluated, but the newest.
    new = max(len(found.token_ids) - (not stopped), 0)
    all_ids = session.evaluated_ids
    evaluated = Evaluated.of(all_ids[: len(all_ids) - new])
    check_identity(case.ids, evaluated, OURS)
    text = tokenizer.decode(found.token_ids)
    return Answer(text, found.token_ids, stopped, evaluated, seconds, judge(text, case.answers))


def _with_control(
    result: CaseResult, tokenizer: Tokenizer, control: Control, vocab_size: int, progress: Evaluating
) -> CaseResult:
    case, ours = result.case, result.ours
    started = time.perf_counter()
    found = answer_beside(
        control,
        case.ids,
        case.answer_tokens,
        ours=ours.token_ids,
        stopped=ours.stopped,
        stop_ids=tokenizer.stop_ids,
        vocab_size=vocab_size,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    text = tokenizer.decode(found.token_ids)
    theirs = Answer(text, found.token_ids, found.stopped, found.evaluated, seconds, judge(text, case.answers))
    return dataclasses.replace(
        result, control=theirs, first_difference=_first_difference(ours, theirs), margin=found.margin
    )


def _first_difference(a: Answer, b: Answer) -> int | None:
    """Index of the first token that differs; the end of an answer that stopped counts as a token."""
    for index, (x, y) in enumerate(zip(a.token_ids, b.token_ids, strict=False)):
        if x != y:
            return index
    shorter = min(len(a.token_ids), len(b.token_ids))
    return shorter if len(a.token_ids) != len(b.token_ids) or a.stopped != b.stopped else None
