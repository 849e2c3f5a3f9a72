"""What a session gives back."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Scores:
    """Teacher-forced scores of consecutive positions."""

    nll: np.ndarray
    """float32 [n], −ln p(token | all tokens before it), in nats."""
    greedy: np.ndarray
    """int32 [n], the most likely token there."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """A continuation of a prompt."""

    token_ids: tuple[int, ...]
    """New tokens; a stop token that ended them is not among them."""
    finish_reason: str
    """`stop`, or `length` when as many tokens as asked for came without one."""
    prompt_tokens: int
    """Tokens of the prompt."""
    reused_tokens: int = 0
    """Tokens of the prompt that were not evaluated again."""
    logprobs: tuple[float, ...] | None = None
    """ln p of each new token under the model itself, before any penalty, filter or temperature; None if
    nobody asked."""
