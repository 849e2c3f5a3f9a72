"""What one pass-key prompt came to: from the record of `synapse generate`, checked against the prompt; and
what a control says to it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.controls.answer import answer_beside
from synapse_jax.evals.controls.control import Control, Evaluating
from synapse_jax.evals.passkey.fixture import PasskeyPrompt
from synapse_jax.evals.planned_checkpoint import PlannedCheckpoint
from synapse_jax.evals.tasks.answers import judge_number
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.spec.digest import sha256_tokens

_ENTRY = ("entry", "rows", "capacity", "program", "executable")


def read_run(prompt: PasskeyPrompt, record: Mapping[str, Any], wall_s: float) -> dict[str, Any]:
    """A prompt's part of the result.

    Args:
        prompt: what was to be evaluated.
        record: the record of the process that evaluated it.
        wall_s: seconds that the process took.

    Raises:
        RunError: other tokens were given to the process than the prompt's, or others were evaluated than the
            prompt and the answer.
    """
    result, tokens, prints = (record[name] for name in ("result", "tokens", "fingerprints"))
    where = f"pass key of length {prompt.length} at depth {prompt.depth:g}"
    if (tokens["count"], tokens["sha256"]) != (len(prompt.ids), prompt.sha256):
        raise RunError(f"{where}: {len(prompt.ids)} tokens were given and {tokens['count']} others arrived")
    expected = evaluated_ids(prompt, result)
    if (tokens["evaluated_count"], tokens["evaluated_sha256"]) != (len(expected), sha256_tokens(expected)):
        raise RunError(
            f"{where}: {tokens['evaluated_count']} tokens were evaluated that are not the {len(expected)} of "
            "prompt and answer"
        )
    return {
        **prompt_fields(prompt),
        **_answer(prompt, result),
        "tokens": tokens,
        "fingerprints": {
            "profile": prints["profile"],
            "entries": [{name: entry[name] for name in _ENTRY} for entry in prints["entries"]],
        },
        "timings": {**record["timings"], "wall_s": wall_s},
        "memory": record["memory"],
        "control": None,
        "identical": None,
        "margin": None,
        "control_failed_the_same_way": None,
    }


def with_control(
    run: Mapping[str, Any],
    prompt: PasskeyPrompt,
    control: Control,
    tokenizer: Tokenizer,
    count: int,
    vocab_size: int,
    progress: Evaluating | None = None,
) -> dict[str, Any]:
    """A prompt's part of the result with a control's answer beside ours.

    Args:
        run: what `read_run` made.
        prompt: the same prompt.
        control: an engine that gives tokens.
        tokenizer: the model's.
        count: most tokens of an answer.
        vocab_size: V of the model.
        progress: called with how many of the prompt's positions the control has evaluated.

    Raises:
        InputError: the control evaluated other tokens than the prompt, or has another vocabulary.
    """
    started = time.perf_counter()
    found = answer_beside(
        control,
        prompt.ids,
        count,
        ours=run["token_ids"],
        stopped=run["finish_reason"] == "stop",
        stop_ids=tokenizer.stop_ids,
        vocab_size=vocab_size,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    reason, text = "stop" if found.stopped else "length", tokenizer.decode(found.token_ids)
    said = {"text": text, "token_ids": list(found.token_ids), "finish_reason": reason}
    theirs = {
        **_answer(prompt, said),
        "evaluated_count": found.evaluated.count,
        "evaluated_sha256": found.evaluated.sha256,
        "seconds": seconds,
    }
    same = all(run[name] == theirs[name] for name in ("found", "other_numbers"))
    return {
        **run,
        "control": theirs,
        "identical": run["text"] == text,
        "margin": found.margin,
        "control_failed_the_same_way": None if run["found"] else same,
    }


def _answer(prompt: PasskeyPrompt, result: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's answer and what it is worth."""
    verdict = judge_number(result["text"], prompt.key)
    return {
        "found": bool(verdict.found),
        "other_numbers": _other_numbers(verdict.others, prompt.key, result),
        **{name: result[name] for name in ("text", "token_ids", "finish_reason")},
    }


def _other_numbers(others: Sequence[str], key: str, result: Mapping[str, Any]) -> list[str]:
    """Numbers beside the key. The budget may cut off the key when it is said once more: that is no other."""
    last = others[-1] if others else ""
    is_cut = result["finish_reason"] == "length" and result["text"].endswith(last) and key.startswith(last)
    return list(others[:-1] if is_cut else others)


def prompt_fields(prompt: PasskeyPrompt) -> dict[str, Any]:
    """A prompt without its tokens, as JSON values."""
    fields = dataclasses.asdict(prompt)
    del fields["ids"]
    return {**fields, "prompt_tokens": len(prompt.ids), "prompt_sha256": prompt.sha256}


def evaluated_ids(prompt: PasskeyPrompt, result: Mapping[str, Any]) -> list[int]:
    """What must have been evaluated: the last new token never is, unless a stop token came after it."""
    new = result["token_ids"]
    return [*prompt.ids, *(new if result["finish_reason"] == "stop" else new[:-1])]


class PasskeyCheckpoint(PlannedCheckpoint[PasskeyPrompt, dict[str, Any]]):
    """A checkpoint with a prompt's part of the result a line."""

    def fields(self, done: dict[str, Any]) -> Mapping[str, Any]:
        """They are JSON values already."""
        return done

    def read(self, value: dict[str, Any], index: int, planned: PasskeyPrompt | None) -> dict[str, Any]:
        """A prompt that is done."""
        expected = {} if planned is None else prompt_fields(planned)
        if not expected or {name: value[name] for name in expected} != expected:
            raise InputError(f"{self.shown}: prompt {index} is not of this run")
        assert planned is not None
        for answer in (value, value["control"] or value):
            judged = _answer(planned, answer)
            if {name: answer[name] for name in judged} != judged:
                raise ValueError("an answer was judged otherwise")
        return value
