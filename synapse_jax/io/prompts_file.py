"""Prompts as people write them: a JSON object a line, with a text or token IDs."""

from __future__ import annotations

import dataclasses
import os

from synapse_jax.errors import InputError
from synapse_jax.io.json_text import parse_json
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.text_file import read_text
from synapse_jax.io.tokens_file import LARGEST_ID, is_token_id


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One line of a prompts file: a text, or token IDs."""

    source: str
    """The file and the line's number, for messages."""
    text: str | None = None
    """The text, or None where token IDs are given."""
    tokens: tuple[int, ...] = ()


def read_prompts_file(path: str | os.PathLike[str]) -> list[Prompt]:
    """Prompts of a UTF-8 file: lines of {"prompt": "text"} or {"tokens": [1, 2, 3]}; empty ones are skipped.

    Raises:
      InputError: the file cannot be read, holds no prompt, or a line is something else; the message names
        the line, counted from 1.
    """
    lines = read_text(path).removeprefix("\ufeff").split("\n")
    prompts = [
        _parse_line(line, f"{shown_path(path)}: line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not prompts:
        raise InputError(f"{shown_path(path)}: holds no prompts")
    return prompts


def _parse_line(line: str, source: str) -> Prompt:
    value = parse_json(line, source)
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"prompt", "tokens"}:
        raise InputError(f'{source}: is not one object {{"prompt": "…"}} or {{"tokens": […]}}')
    if "prompt" in value:
        if not isinstance(value["prompt"], str):
            raise InputError(f"{source}: prompt is not a string")
        return Prompt(source, text=value["prompt"])
    tokens = value["tokens"]
    if not isinstance(tokens, list) or not tokens:
        raise InputError(f"{source}: tokens is not a list of at least one token id")
    for index, token in enumerate(tokens):
        if not is_token_id(token):
            raise InputError(
                f"{source}: token {index} is {quote(token)}, not a decimal id from 0 to {LARGEST_ID}"
            )
    return Prompt(source, tokens=tuple(tokens))
