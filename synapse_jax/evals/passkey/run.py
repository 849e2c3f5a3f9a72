"""What one pass-key prompt came to: from the record of `synapse generate`, checked against the prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.passkey.fixture import PasskeyPrompt
from synapse_jax.evals.planned_checkpoint import PlannedCheckpoint
from synapse_jax.evals.tasks.answers import judge_number
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
    verdict = judge_number(result["text"], prompt.key)
    return {
        **prompt_fields(prompt),
        "found": bool(verdict.found),
        "other_numbers": _other_numbers(verdict.others, prompt.key, result),
        "text": result["text"],
        "token_ids": result["token_ids"],
        "finish_reason": result["finish_reason"],
        "tokens": tokens,
        "fingerprints": {
            "profile": prints["profile"],
            "entries": [{name: entry[name] for name in _ENTRY} for entry in prints["entries"]],
        },
        "timings": {**record["timings"], "wall_s": wall_s},
        "memory": record["memory"],
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
        verdict = judge_number(value["text"], value["key"])
        if value["found"] != bool(verdict.found):
            raise ValueError("an answer was judged otherwise")
        return value
