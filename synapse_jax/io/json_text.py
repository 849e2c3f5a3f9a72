"""JSON that people write by hand: what is wrong with it, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from synapse_jax.errors import InputError


def parse_json(text: str, source: str, *, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON text.

    Args:
      text: The text.
      source: What it is, for messages: a file or a flag.
      parse_constant: Called with NaN, Infinity and -Infinity, as `json.loads` does; a ValueError refuses.

    Raises:
      InputError: not JSON, where line and column are named, or an object with a key twice.
    """
    try:
        return json.loads(text, parse_constant=parse_constant, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")
        raise InputError(
            f"{source}: not valid JSON: {reason} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InputError(f"{source}: not valid JSON: lists and objects nest too deeply") from None
    except ValueError as error:
        raise InputError(f"{source}: not valid JSON: {error}") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these (name, value) pairs, for `json.loads`.

    Raises:
      ValueError: a name is there twice.
    """
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return values
