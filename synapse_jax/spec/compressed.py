"""Policies of a window: only it, or it and the mean of every block of keys that left it. No jax."""

from __future__ import annotations

import dataclasses

from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.policy import AttentionPolicy, check_number, full_layers, read_number, read_options


class _Windowed(AttentionPolicy):
    """A policy that keeps a window of exact keys in layers that see every key by the file's own masks."""

    window: int

    def applies_to(self, spec: ModelSpec, layer: int) -> bool:
        """Whether a layer reads less: it sees every key by the file's own masks."""
        return not spec.window_of(layer)

    def window_of(self, spec: ModelSpec, layer: int) -> int:
        """Newest keys that a layer sees exactly."""
        return spec.window_of(layer) or self.window

    def check(self, spec: ModelSpec, page_size: int) -> None:
        """Refuses a model that the policy would not change.

        Raises:
            InputError: no layer sees every key.
        """
        full_layers(spec, str(self))


@dataclasses.dataclass(frozen=True)
class SlidingWindow(_Windowed):
    """A token at position p sees the exact keys p − window + 1 … p and nothing else."""

    window: int
    """Keys that a token sees, its own included; at least 1."""

    def __post_init__(self):
        check_number("window", "window", self.window, 1)

    def __str__(self) -> str:
        return f"window:{self.window}"

    def beyond_mask(self, spec: ModelSpec, layer: int) -> str:
        """`dense`: the window is all there is to it."""
        return "dense"

    def positions_read(self, position: int) -> int:
        """Keys that a token reads, its own included."""
        return min(position + 1, self.window)


@dataclasses.dataclass(frozen=True)
class Compressed(_Windowed):
    """A window of exact keys, and before it the mean key and the mean value of every whole block.

    A token at position p attends in one softmax to the exact keys p − window + 1 … p and to pooled block i
    (keys i·b … i·b + b − 1) once (i + 1)·b ≤ p − window + 1: all its keys have then left the window, so none
    is counted twice. Keys are pooled before they are rotated, and the pooled key is rotated once, at the
    block's midpoint i·b + b // 2. This is a cheaper form of the in-block encoding of Native Sparse Attention
    (arXiv 2502.11089), and deviates from it.

    The newest (p − window + 1) mod b keys of those that left the window are seen by no column: they wait for
    their block to fill. This blind spot of up to b − 1 keys belongs to the definition.
    """

    window: int
    """Exact keys that a token sees, its own included; at least 1."""
    block: int
    """b, keys that are pooled into one; at least 1."""

    def __post_init__(self):
        for field in ("window", "block"):
            check_number("compressed", field, getattr(self, field), 1)

    def __str__(self) -> str:
        return f"compressed:window={self.window},block={self.block}"

    def blocks_seen(self, position: int) -> int:
        """Pooled blocks that a token sees."""
        return max(position - self.window + 1, 0) // self.block

    def positions_read(self, position: int) -> int:
        """Exact keys and pooled blocks that a token reads, its own key included."""
        return min(position + 1, self.window) + self.blocks_seen(position)


def read_window(text: str, rest: str) -> SlidingWindow:
    """Reads the W of `window:W`.

    Raises:
        InputError: it is no whole number of at least 1.
    """
    return SlidingWindow(read_number(text, "window", rest))


def read_compressed(text: str, rest: str) -> Compressed:
    """Reads the options of `compressed:`.

    Raises:
        InputError: what cannot be used.
    """
    return read_options(Compressed, text, rest, {})
