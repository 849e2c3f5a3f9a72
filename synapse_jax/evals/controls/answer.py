"""A control's greedy answer to a prompt that this engine has answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from synapse_jax.evals.controls.control import (
    Control,
    Evaluated,
    Evaluating,
    check_identity,
    check_vocabulary,
)


@dataclasses.dataclass(frozen=True)
class ControlAnswer:
    """Greedy tokens of an engine that gives tokens."""

    token_ids: tuple[int, ...]
    """Without the stop token that ended them."""
    stopped: bool
    """Whether a stop token came before the budget was used."""
    evaluated: Evaluated
    """The prompt's tokens by the engine's own account; they are the prompt."""
    margin: float | None
    """As in `ControlText`."""


def answer_beside(
    control: Control,
    ids: Sequence[int],
    count: int,
    *,
    ours: Sequence[int],
    stopped: bool,
    stop_ids: Collection[int],
    vocab_size: int,
    progress: Evaluating | None = None,
) -> ControlAnswer:
    """Asks a control what this engine has answered.

    Args:
        control: an engine that gives tokens.
        ids: the prompt.
        count: most tokens.
        ours: this engine's answer, without its stop token.
        stopped: whether a stop token ended it.
        stop_ids: tokens that end an answer.
        vocab_size: V of this engine's distributions.
        progress: as in `Control.generate`.

    Raises:
        InputError: the control evaluated other tokens than the prompt, or has another vocabulary.
    """
    beside: list[Collection[int]] = [{token} for token in ours]
    if stopped:
        beside.append(stop_ids)
    found = control.generate(
        np.array(ids, np.int32), count, stop_ids=stop_ids, beside=beside, progress=progress
    )
    check_identity(ids, found.evaluated, control.name)
    assert found.token_ids is not None and found.vocab_size is not None
    check_vocabulary(found.vocab_size, vocab_size, control.name)
    return ControlAnswer(found.token_ids, found.stopped, found.evaluated, found.margin)
