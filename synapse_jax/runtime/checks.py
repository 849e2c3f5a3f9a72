"""What a session refuses: tokens that it cannot take, numbers that it must not give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synapse_jax.dims import MAX_STEP_ROWS
from synapse_jax.errors import InputError, RunError
from synapse_jax.io.tokens_file import check_token_ids
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.compressed import Compressed
from synapse_jax.spec.policy import AttentionPolicy


def checked_ids(ids: Sequence[int] | np.ndarray, vocab_size: int, context: int, held: int = 0) -> np.ndarray:
    """Token IDs as int32 [n], to be evaluated after `held` others.

    Raises:
        InputError: no list of integers, none at all, one outside the vocabulary, or more than the context.
    """
    given = np.asarray(ids)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise InputError(
            f"token IDs must be a list of at least one integer, not {given.dtype} {list(given.shape)}"
        )
    check_token_ids(given.tolist(), vocab_size, "token IDs")
    if held and held + given.size > context:
        raise InputError(f"{given.size} tokens after the {held} held are above the context of {context}")
    if given.size > context:
        raise InputError(f"{given.size} tokens are above the context of {context}")
    return given.astype(np.int32)


def check_scoring(policy: AttentionPolicy, rows: int, reuse: bool) -> None:
    """Refuses row counts that a session cannot score with.

    Raises:
        InputError: outside 1 … 512; another count than 1 under a policy of single tokens; reuse with 1 under
            any other.
    """
    if not 1 <= rows <= MAX_STEP_ROWS:
        raise InputError(f"scoring rows {rows} are not from 1 to {MAX_STEP_ROWS}")
    if policy.is_decode_only and rows != 1:
        raise InputError(
            f"attention {policy} is of tokens evaluated one by one: it needs scoring rows 1, not {rows}"
        )
    if reuse and rows == 1 and not policy.is_decode_only:
        raise InputError("reuse needs at least 2 scoring rows: the one-row entry gives other bits")


def check_continuations(policy: AttentionPolicy, prefix: int, endings: Sequence[int], context: int) -> None:
    """Refuses endings that cannot be scored.

    Args:
        policy: in force.
        prefix: tokens of the prompt.
        endings: tokens of each ending.
        context: most positions of a sequence.

    Raises:
        InputError: there is none; one leaves the context; or the policy compresses: pooled blocks and their
            sums belong to one sequence.
    """
    if isinstance(policy, Compressed):
        raise InputError(f"attention {policy} has no endings of one prompt together: score each by itself")
    if not endings:
        raise InputError("there is no continuation to score")
    if prefix + max(endings) > context:
        raise InputError(
            f"a prefix of {prefix} tokens and a continuation of {max(endings)} are above the context of "
            f"{context}"
        )


def check_sharing(*attentions: str) -> None:
    """Refuses policies under which a prompt is no other policy's prompt.

    Raises:
        InputError: one of them is not a policy of decoded tokens.
    """
    for attention in attentions:
        if not parse_attention(attention).is_decode_only:
            raise InputError(f"attention {attention} is not one of decoded tokens: it shares no prompt")


def checked_rows(rows: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
    """Positions, int [n], whose logits are wanted.

    Raises:
        InputError: no list of integers, none at all, or one that is no position of `count` tokens.
    """
    wanted = np.asarray(rows)
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu" or not wanted.size:
        raise InputError("logit rows must be a list of at least one integer")
    if wanted.min() < 0 or wanted.max() >= count:
        raise InputError(f"logit rows {wanted.tolist()[:8]} are not positions of {count} tokens")
    return wanted


def check_finite(nll: np.ndarray, position: int) -> None:
    """Refuses NaN and infinity in the NLL, float32 [n], of positions from `position` on.

    Raises:
        RunError: names the first such position, and the end of its step: one NaN among a step's values spoils
            all of its rows, since masked keys are multiplied by zero.
    """
    wrong = np.flatnonzero(~np.isfinite(nll))
    if wrong.size:
        raise RunError(
            f"the NLL at position {position + wrong[0]} is {nll[wrong[0]]}, in the step that ends at "
            f"position {position + len(nll) - 1}"
        )
