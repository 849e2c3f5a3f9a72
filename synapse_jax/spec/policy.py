"""What every attention policy is. No jax."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from synapse_jax.errors import InputError
from synapse_jax.spec.model import ModelSpec

LARGEST = 2**31 - 1
"""Largest number that a policy may name."""


class AttentionPolicy:
    """Which of the keys that a layer's own mask allows a token reads.

    A policy's text is canonical, so equal policies have equal texts. Layers that slide by the file's own
    masks stay as they are under every policy.
    """

    is_decode_only = False
    """Whether only tokens of the decode role read less; prompt tokens then attend densely."""

    def applies_to(self, spec: ModelSpec, layer: int) -> bool:
        """Whether a layer reads less than its own mask allows."""
        return False

    def window_of(self, spec: ModelSpec, layer: int) -> int:
        """Newest keys that a layer sees exactly; 0 where it sees every key."""
        return spec.window_of(layer)

    def beyond_mask(self, spec: ModelSpec, layer: int) -> str:
        """What a layer does beyond the mask of `window_of`: the policy's text; `dense` is nothing."""
        return str(self) if self.applies_to(spec, layer) else "dense"

    def check(self, spec: ModelSpec, page_size: int) -> None:
        """Refuses a model or storage page that the policy cannot work with.

        Raises:
            InputError: the reason, with the values.
        """

    def positions_read(self, position: int) -> int:
        """Cached rows that a token (of the decode role, where only that reads less) reads in a layer that the
        policy applies to, its own included."""
        return position + 1


def full_layers(spec: ModelSpec, name: str) -> list[int]:
    """Layers that see every key by the file's own masks.

    Raises:
        InputError: there is none, so that the policy `name` would change nothing.
    """
    full = [layer for layer in range(spec.layers) if not spec.window_of(layer)]
    if not full:
        raise InputError(
            f"attention {name}: all {spec.layers} layers of the model have a sliding window of "
            f"{spec.window}; a layer that sees all keys is needed"
        )
    return full


def check_number(name: str, field: str, value: object, least: int) -> None:
    """Refuses what is no integer from `least` to 2³¹ − 1.

    Raises:
        InputError: names the policy, the field and the value.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
        raise InputError(f"attention {name}: {field} {value!r} is not an integer from {least} up")


def read_number(text: str, name: str, value: str) -> int:
    """A decimal number of a policy's text.

    Raises:
        InputError: it is none.
    """
    if not re.fullmatch(r"\d{1,10}", value, re.ASCII):
        raise InputError(f"attention {text!r}: {name} {value!r} is not a whole number")
    return int(value)


Policy = TypeVar("Policy", bound=AttentionPolicy)


def read_options(
    policy: type[Policy], text: str, rest: str, readers: Mapping[str, Callable[[str, str, str], Any]]
) -> Policy:
    """A policy from its `key=value,…`; keys without a reader of their own are numbers.

    Raises:
        InputError: an unknown key, one that is missing or named twice, or a value that cannot be used.
    """
    fields = {field.name: field for field in dataclasses.fields(policy)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for word in rest.split(","):
        name, equals, value = word.partition("=")
        if name not in fields or not equals:
            raise InputError(
                f"attention {text!r}: {word!r} is not an option; the options are {', '.join(fields)}"
            )
        if name in given:
            raise InputError(f"attention {text!r}: {name} is there twice")
        given[name] = readers.get(name, read_number)(text, name, value)
    missing = [n for n, field in fields.items() if field.default is dataclasses.MISSING and n not in given]
    if missing:
        raise InputError(f"attention {text!r}: {' and '.join(missing)} must be given, in tokens")
    return policy(**given)
