"""Attention policies by their text. No jax."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from synapse_jax.errors import InputError
from synapse_jax.spec.compressed import read_compressed, read_window
from synapse_jax.spec.page_activation import read_pages
from synapse_jax.spec.policy import AttentionPolicy


@dataclasses.dataclass(frozen=True)
class Dense(AttentionPolicy):
    """Every key that the file's own masks allow."""

    def __str__(self) -> str:
        return "dense"


@functools.cache
def parse_attention(text: str) -> AttentionPolicy:
    """Reads a policy.

    `dense`, `window:W`, `compressed:window=W,block=b` or `pages:budget=B,window=W`, the last one with further
    `key=value` of `PageActivation`. Lengths are in tokens.

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


_KINDS: dict[str, Callable[[str, str], AttentionPolicy]] = {
    "dense": _read_dense,
    "pages": read_pages,
    "window": read_window,
    "compressed": read_compressed,
}
