"""Token ids as people write them: decimal numbers separated by white space or commas, or a JSON array."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.text_file import read_bytes

LARGEST_ID = 2**31 - 1
"""Token ids are int32 everywhere."""

_SPACE = " \t\r\n\f\v"
_PIECE = re.compile(rf"[^,{_SPACE}]+")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


def read_tokens_file(path: str | os.PathLike[str]) -> list[int]:
    """Token ids of a file, in order.

    Raises:
      InputError: the file cannot be read or `parse_tokens` refuses it.
    """
    data = read_bytes(path)
    source = shown_path(path)
    try:
        return parse_tokens(data.decode("ascii"), source)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source}: byte 0x{data[error.start]:02X} at offset {error.start} has no place in a token list"
        ) from None


def parse_tokens(text: str, source: str) -> list[int]:
    """Token ids of a text; an empty list is refused.

    Args:
      text: `1 2 3`, `1, 2, 3`, or `[1, 2, 3]`.
      source: What the text is, for messages: a file or `--tokens`.

    Returns:
      Ids in [0, 2³¹).

    Raises:
      InputError: anything that is not a decimal number of that range, two
        commas without a number between them, a comma at either end. The
        message names the position, counted from 0, and the piece.
    """
    ids = _parse_json(text, source) if text.lstrip(_SPACE).startswith("[") else _parse_list(text, source)
    if not ids:
        raise InputError(f"{source}: holds no token ids")
    return ids


def check_token_ids(ids: Sequence[int], vocab_size: int, source: str) -> None:
    """Checks that every id is in [0, vocab_size).

    Raises:
      InputError: names the index and the id of the first one that is not.
    """
    for index, value in enumerate(ids):
        if not 0 <= value < vocab_size:
            raise InputError(
                f"{source}: token {index} is {value}, outside the vocabulary of {vocab_size} tokens"
            )


def is_token_id(value: object) -> bool:
    """Whether a JSON value is an int in [0, 2³¹); true and false are none."""
    return type(value) is int and 0 <= value <= LARGEST_ID


def _parse_list(text: str, source: str) -> list[int]:
    ids: list[int] = []
    end = 0
    for match in _PIECE.finditer(text):
        gap = text[end : match.start()]
        commas = gap.count(",")
        if commas > (1 if ids else 0):
            offset = end + (gap.find(",", gap.find(",") + 1) if ids else gap.find(","))
            raise _empty(source, len(ids), offset)
        piece = match.group()
        if not _NUMBER.fullmatch(piece) or int(piece) > LARGEST_ID:
            raise _refusal(source, len(ids), f" at character {match.start()}", piece)
        ids.append(int(piece))
        end = match.end()
    if "," in text[end:]:
        raise _empty(source, len(ids), text.index(",", end))
    return ids


def _parse_json(text: str, source: str) -> list[int]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        position = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(
            f"{source}: not a JSON array of token ids{position}: {str(error).split(':')[0]}"
        ) from None
    ids: list[int] = []
    for index, value in enumerate(values):
        if not is_token_id(value):
            shown = {list: "a list", dict: "an object"}.get(type(value)) or json.dumps(value)
            raise _refusal(source, index, "", shown)
        ids.append(value)
    return ids


def _empty(source: str, index: int, offset: int) -> InputError:
    return InputError(f"{source}: token {index} at character {offset} is empty: a comma without a number")


def _refusal(source: str, index: int, where: str, piece: str) -> InputError:
    return InputError(
        f"{source}: token {index}{where} is {quote(piece)}, not a decimal id from 0 to {LARGEST_ID}"
    )
