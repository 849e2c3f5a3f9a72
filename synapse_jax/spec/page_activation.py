"""Page activation: a decoded token reads a budget of the pages of its prefix. No jax."""

from __future__ import annotations

import dataclasses
import re

from synapse_jax.errors import InputError
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.policy import AttentionPolicy, check_number, full_layers, read_options

_LAYERS = re.compile(r"\d{1,6}(-\d{1,6})?(\+\d{1,6}(-\d{1,6})?)*")


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

    is_decode_only = True

    def __post_init__(self):
        for field, least in (("budget", 0), ("window", 1), ("page", 1), ("sink", 0), ("seed", 0)):
            check_number("pages", field, getattr(self, field), least)
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
        full = full_layers(spec, "pages")
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


def read_pages(text: str, rest: str) -> PageActivation:
    """Reads the options of `pages:`; `dense_layers` are joined by `+`, ranges are `FIRST-LAST`: 0+1+28-29.

    Raises:
        InputError: what cannot be used.
    """
    readers = {"select": _read_word, "heads": _read_word, "dense_layers": _read_layers}
    return read_options(PageActivation, text, rest, readers)


def _read_word(text: str, name: str, value: str) -> str:
    return value


def _read_layers(text: str, name: str, value: str) -> tuple[int, ...]:
    if value == "none":
        return ()
    if not _LAYERS.fullmatch(value):
        raise InputError(f"attention {text!r}: {name} {value!r} are not layers as in 0+1+28-29")
    layers: set[int] = set()
    for word in value.split("+"):
        first, _, last = word.partition("-")
        if int(last or first) < int(first):
            raise InputError(f"attention {text!r}: {name} {word} is an empty range")
        layers.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(layers))
