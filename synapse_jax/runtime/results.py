"""What a session gives back."""

from __future__ import annotations

import dataclasses

import numpy as np

from synapse_jax.spec.policy import AttentionPolicy


@dataclasses.dataclass(frozen=True)
class Scores:
    """Teacher-forced scores of consecutive positions."""

    nll: np.ndarray
    """float32 [n], −ln p(token | all tokens before it), in nats."""
    greedy: np.ndarray
    """int32 [n], the most likely token there."""
    reused_tokens: int = 0
    """Tokens whose keys and values were not computed again."""
    positions_read: np.ndarray | None = None
    """int64 [n], cached rows that the row before each token read in a layer that the attention policy applies
    to; None under `dense`."""


def positions_read(policy: AttentionPolicy, start: int, stop: int) -> np.ndarray | None:
    """`Scores.positions_read` of positions `start` … `stop` − 1: it depends on nothing but these."""
    if str(policy) == "dense":
        return None
    return np.array([policy.positions_read(row) for row in range(start - 1, stop - 1)], np.int64)


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
    reused_generated_tokens: int = 0
    """How many of these an earlier call had generated, a row at a time: their keys are exact to 1e-4 and not
    to the bit."""
    reuse_note: str | None = None
    """Why fewer tokens were reused than the prompt has in common with what the session remembers."""
    logprobs: tuple[float, ...] | None = None
    """ln p of each new token under the model itself, before any penalty, filter or temperature; None if
    nobody asked."""
