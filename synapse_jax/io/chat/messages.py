"""Messages of a conversation as people write them: a JSON list of {"role", "content"}."""

from __future__ import annotations

import os
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.io.json_text import parse_json
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.text_file import read_text

_DEEPEST = 64
"""Levels of lists and objects within a message."""


def read_messages(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Messages of a UTF-8 JSON file; see `parse_messages`.

    Raises:
      InputError: the file cannot be read or `parse_messages` refuses it.
    """
    return parse_messages(read_text(path), shown_path(path))


def parse_messages(text: str, source: str) -> list[dict[str, Any]]:
    """Messages of a JSON text, checked by `check_messages`.

    Args:
      text: `[{"role": "user", "content": "Hello"}, …]`.
      source: What the text is, for messages: a file or a flag.

    Raises:
      InputError: not JSON (line and column are named), or not messages.
    """
    value = parse_json(text.removeprefix("\ufeff"), source, parse_constant=_refuse_constant)
    return check_messages(value, source)


def check_messages(value: object, source: str) -> list[dict[str, Any]]:
    """Checks that a value is a conversation.

    A message is an object with a `role` and a `content`: a string, or a list of
    {"type": "text", "text": …}. The content may be missing or null where there are
    `tool_calls`. Other fields go to the template as they are; null ones are left out.

    Args:
      value: Any JSON value.
      source: What it is, for messages.

    Returns:
      A copy without null fields.

    Raises:
      InputError: names the first message, counted from 0, and the field that is wrong.
    """
    if not isinstance(value, list):
        raise InputError(f"{source}: is {_kind(value)}, not a list of messages")
    if not value:
        raise InputError(f"{source}: holds no messages")
    return [_check_message(message, f"{source}: message {index}") for index, message in enumerate(value)]


def _check_message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InputError(f'{where} is {_kind(message)}, not an object with "role" and "content"')
    if "role" not in message:
        raise InputError(f"{where} has no role")
    role = message["role"]
    if not isinstance(role, str) or not role.strip():
        raise InputError(f"{where}: role is {_kind(role)}, not a name")
    content = message.get("content")
    if content is None and not message.get("tool_calls"):
        raise InputError(f"{where} ({quote(role)}) has no content")
    if isinstance(content, list):
        _check_parts(content, where)
    elif content is not None and not isinstance(content, str):
        raise InputError(f"{where}: content is {_kind(content)}, not a string or a list of text parts")
    for name, item in message.items():
        _check_value(item, f"{where}: {name}", 0)
        _check_value(name, f"{where}: the name of a field", 0)
    return {name: item for name, item in message.items() if item is not None}


def _check_parts(parts: list[Any], where: str) -> None:
    if not parts:
        raise InputError(f"{where}: content is an empty list")
    for index, part in enumerate(parts):
        place = f"{where}: content[{index}]"
        if not isinstance(part, dict):
            raise InputError(f'{place} is {_kind(part)}, not {{"type": "text", "text": …}}')
        if part.get("type") != "text":
            raise InputError(f"{place}: type is {quote(part.get('type'))}; only 'text' can be read")
        if not isinstance(part.get("text"), str):
            raise InputError(f"{place}: text is {_kind(part.get('text'))}, not a string")


def _check_value(value: object, where: str, depth: int) -> None:
    """Strings without NUL and lone surrogates, and nothing that JSON does not have."""
    if depth > _DEEPEST:
        raise InputError(f"{where} nests more than {_DEEPEST} lists and objects")
    if isinstance(value, str):
        for index, character in enumerate(value):
            if character == "\0":
                raise InputError(f"{where}: character {index} is NUL")
            if "\ud800" <= character <= "\udfff":
                raise InputError(f"{where}: character {index} is a lone surrogate U+{ord(character):04X}")
    elif isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise InputError(f"{where}: the key {quote(name)} is not a string")
            _check_value(name, where, depth)
            _check_value(item, f"{where}.{quote(name)[1:-1]}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_value(item, f"{where}[{index}]", depth + 1)
    elif value is not None and not isinstance(value, bool | int | float):
        raise InputError(f"{where} is {type(value).__name__}, which JSON does not have")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", type(None): "null", bool: "true or false"}
    return names.get(type(value)) or quote(value)
