"""Attention policies: which of the keys that a layer's own mask allows a token reads. No jax."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.spec.model import ModelSpec

_LAYERS = re.compile(r"\d{1,6}(-\d{1,6})?(\+\d{1,6}(-\d{1,6})?)*")
_LARGEST = 2**31 - 1


class AttentionPolicy:
    """A policy; its text is canonical, so equal policies have equal texts."""

    is_approximate = False
    """Whether tokens of the decode role read fewer keys than the layers' own masks allow."""

    def applies_to(self, spec: ModelSpec, layer: int) -> bool:
        """Whether a layer is approximated."""
        return False

    def check(self, spec: ModelSpec, page_size: int) -> None:
        """Refuses a model or storage page that the policy cannot work with.

        Raises:
            InputError: the reason, with the values.
        """

    def positions_read(self, position: int) -> int:
        """Positions that a token of the decode role reads in an approximated layer, its own included."""
        return position + 1


@dataclasses.dataclass(frozen=True)
class Dense(AttentionPolicy):
    """Every key that the file's own masks allow."""

    def __str__(self) -> str:
        return "dense"


@dataclasses.dataclass(frozen=True)
class PageActivation(AttentionPolicy):
    """Query-aware selection of pages (Quest, arXiv 2406.10774), for tokens of the decode role.

    A token at position p always reads the first `sink` selection pages and every page that overlaps the last
    `window` positions p − window + 1 … p. Of the pages between, it reads budget / page more: those whose keys
    may have the largest product with its query by their bounds, or as many random ones. Layers that slide by
    the file's own masks, and `dense_layers`, stay as they are.
    """

    budget: int
    """Tokens in the pages that are chosen; a multiple of `page`, 0 chooses none."""
    window: int
    """Newest positions that are always read, the token's own included; at least 1."""
    page: int = 16
    """E, positions a selection page: a power of two that divides the storage page."""
    sink: int = 1
    """First selection pages that are always read."""
    select: str = "bound"
    """`bound` by the largest possible q·k in a page, `random` as its control."""
    heads: str = "kv"
    """`kv` chooses a KV head's pages by the best of its query heads; `query` chooses for each by itself."""
    dense_layers: tuple[int, ...] = ()
    """Layers that are not approximated, ascending."""
    seed: int = 0
    """Of random selection; 0 under `bound`, which draws nothing."""

    is_approximate = True

    def __post_init__(self):
        for field, least in (("budget", 0), ("window", 1), ("page", 1), ("sink", 0), ("seed", 0)):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _LARGEST:
                raise InputError(f"attention pages: {field} {value!r} is not an integer from {least} up")
        for field, choices in (("select", ("bound", "random")), ("heads", ("kv", "query"))):
            if getattr(self, field) not in choices:
                raise InputError(
                    f"attention pages: {field} {getattr(self, field)!r} is not one of {', '.join(choices)}"
                )
        if self.page & (self.page - 1):
            raise InputError(f"attention pages: page {self.page} is not a power of two")
        if self.budget % self.page:
            raise InputError(f"attention pages: budget {self.budget} is not a multiple of page {self.page}")
        if self.seed and self.select != "random":
            raise InputError(f"attention pages: seed {self.seed} belongs to select=random")
        if self.dense_layers != tuple(sorted(set(self.dense_layers))):
            raise InputError(f"attention pages: dense_layers {self.dense_layers} are not ascending")

    def __str__(self) -> str:
        layers = "+".join(map(str, self.dense_layers)) or "none"
        seed = f",seed={self.seed}" if self.select == "random" else ""
        return (
            f"pages:budget={self.budget},page={self.page},window={self.window},sink={self.sink},"
            f"select={self.select},heads={self.heads},dense_layers={layers}{seed}"
        )

    def applies_to(self, spec: ModelSpec, layer: int) -> bool:
        """Whether a layer is approximated: it sees all keys and is not among `dense_layers`."""
        return not spec.window_of(layer) and layer not in self.dense_layers

    def check(self, spec: ModelSpec, page_size: int) -> None:
        """Refuses a model or storage page that the policy cannot work with.

        Raises:
            InputError: a selection page that does not divide the storage page, a dense layer that does not
                exist, or no layer that would be approximated.
        """
        if page_size % self.page:
            raise InputError(
                f"attention pages: page {self.page} does not divide the storage page of {page_size} positions"
            )
        if self.dense_layers and self.dense_layers[-1] >= spec.layers:
            raise InputError(
                f"attention pages: dense layer {self.dense_layers[-1]} is not one of the model's layers "
                f"0 … {spec.layers - 1}"
            )
        full = [layer for layer in range(spec.layers) if not spec.window_of(layer)]
        if not full:
            raise InputError(
                f"attention pages: all {spec.layers} layers of the model have a sliding window of "
                f"{spec.window}; a layer that sees all keys is needed"
            )
        if set(full) <= set(self.dense_layers):
            raise InputError(
                f"attention pages: dense_layers {'+'.join(map(str, self.dense_layers))} hold all "
                f"{len(full)} layers that see all keys; none would be approximated"
            )

    @property
    def budget_pages(self) -> int:
        """Selection pages that are chosen beside those that are always read."""
        return self.budget // self.page

    def positions_read(self, position: int) -> int:
        """Positions that a token of the decode role reads in an approximated layer, its own included.

        Of the pages read, those cells that hold a position up to its own count.
        """
        first_recent = max(position - self.window + 1, 0) // self.page
        sinks = min(self.sink, first_recent)
        chosen = min(self.budget_pages, first_recent - sinks)
        return (sinks + chosen - first_recent) * self.page + position + 1


@functools.cache
def parse_attention(text: str) -> AttentionPolicy:
    """Reads a policy: `dense`, or `pages:budget=B,window=W` with further `key=value` of `PageActivation`.

    `dense_layers` are joined by `+`, ranges are `FIRST-LAST`: `dense_layers=0+1+28-29`.

    Raises:
        InputError: an unknown policy or key, a key that is missing or named twice, or a value out of range.
    """
    kind, _, rest = text.partition(":")
    if kind not in _KINDS:
        raise InputError(f"attention {text!r} is not supported; choose from {', '.join(_KINDS)}")
    return _KINDS[kind](text, rest)


def _read_dense(text: str, rest: str) -> AttentionPolicy:
    if text != "dense":
        raise InputError(f"attention {text!r}: dense takes no options")
    return Dense()


def _read_pages(text: str, rest: str) -> AttentionPolicy:
    fields = {field.name: field for field in dataclasses.fields(PageActivation)}
    given: dict[str, Any] = {}
    for word in rest.split(","):
        name, equals, value = word.partition("=")
        if name not in fields or not equals:
            raise InputError(
                f"attention {text!r}: {word!r} is not an option; the options are {', '.join(fields)}"
            )
        if name in given:
            raise InputError(f"attention {text!r}: {name} is there twice")
        given[name] = _read_value(text, name, value)
    missing = [n for n, field in fields.items() if field.default is dataclasses.MISSING and n not in given]
    if missing:
        raise InputError(f"attention {text!r}: {' and '.join(missing)} must be given, in tokens")
    return PageActivation(**given)


def _read_value(text: str, name: str, value: str) -> Any:
    if name in ("select", "heads"):
        return value
    if name == "dense_layers":
        return _read_layers(text, value)
    if not re.fullmatch(r"\d{1,10}", value, re.ASCII):
        raise InputError(f"attention {text!r}: {name} {value!r} is not a whole number")
    return int(value)


def _read_layers(text: str, value: str) -> tuple[int, ...]:
    if value == "none":
        return ()
    if not _LAYERS.fullmatch(value):
        raise InputError(f"attention {text!r}: dense_layers {value!r} are not layers as in 0+1+28-29")
    layers: set[int] = set()
    for word in value.split("+"):
        first, _, last = word.partition("-")
        if int(last or first) < int(first):
            raise InputError(f"attention {text!r}: dense_layers {word} is an empty range")
        layers.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(layers))


_KINDS: dict[str, Callable[[str, str], AttentionPolicy]] = {"dense": _read_dense, "pages": _read_pages}
