"""What a control gives, and when its figures may be compared with ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.evals.score import Protocol as ScoringProtocol
from synapse_jax.spec.digest import sha256_tokens


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """Tokens that an engine says it has evaluated, by its own account."""

    count: int
    sha256: str

    @classmethod
    def of(cls, ids: Sequence[int] | np.ndarray) -> Evaluated:
        """Of these tokens."""
        return cls(len(ids), sha256_tokens(ids))


@dataclasses.dataclass(frozen=True)
class ControlScores:
    """Teacher-forced scores of one chunk's targets."""

    nll: np.ndarray
    """float64 [n], −ln p(token | all tokens before it), in nats."""
    greedy: np.ndarray
    """int32 [n], the most likely token there."""
    evaluated: Evaluated
    """The chunk's tokens."""
    vocab_size: int
    """V of its distributions."""
    running_perplexity: float | None = None
    """What the engine itself prints of all chunks up to this one; None if it prints nothing."""


@dataclasses.dataclass(frozen=True)
class ControlText:
    """A greedy continuation."""

    token_ids: tuple[int, ...] | None
    """None if the engine gives only text."""
    text: bytes | None
    """None if the engine gives only tokens."""
    evaluated: Evaluated
    """The prompt's tokens."""
    stopped: bool = False
    """Whether a stop token ended it before as many tokens as were asked for."""
    margin: float | None = None
    """Where the first token differs from those of another engine that were given: how far, in logits, that
    engine's token lies below the one taken here. None where nothing differs, or nothing was given."""
    vocab_size: int | None = None
    """V of its distributions; None if the engine gives only text."""


Evaluating = Callable[[int], None]
"""Called with how many of a prompt's positions an engine has evaluated."""


class Control(Protocol):
    """Another engine. Token IDs go in, so that no tokenizer stands between the engines."""

    @property
    def name(self) -> str:
        """Engine and version."""
        ...

    def score(self, ids: np.ndarray, protocol: ScoringProtocol) -> Iterator[ControlScores]:
        """Scores int32 [n] chunk by chunk, as `protocol` cuts it; memory does not grow with n · V."""
        ...

    def close(self) -> None:
        """Frees what the engine holds."""
        ...

    def generate(
        self,
        ids: np.ndarray,
        count: int,
        *,
        stop_ids: Collection[int] = (),
        beside: Sequence[Collection[int]] | None = None,
        progress: Evaluating | None = None,
    ) -> ControlText:
        """Continues a prompt greedily.

        Args:
            ids: the prompt, int32 [n].
            count: most tokens.
            stop_ids: tokens that end the text and are not part of it. Text ends at the engine's own.
            beside: the other engine's continuation, as `greedy.Greedy` takes it.
            progress: hears of the prompt as it is evaluated, where the engine lets one see it.
        """
        ...


def check_identity(ids: Sequence[int] | np.ndarray, evaluated: Evaluated, engine: str) -> None:
    """Refuses figures of other tokens than those that were meant.

    Args:
        ids: what was to be evaluated.
        evaluated: what the engine says it has evaluated.
        engine: its name, for messages.

    Raises:
        InputError: names both counts, and the digests where the counts agree.
    """
    ours = Evaluated.of(ids)
    if ours.count != evaluated.count:
        raise InputError(
            f"{engine} evaluated {evaluated.count} tokens, {ours.count} were meant: their figures say "
            "nothing about each other"
        )
    if ours.sha256 != evaluated.sha256:
        raise InputError(
            f"{engine} evaluated {evaluated.count} other tokens (sha256 {evaluated.sha256[:16]}…) than were "
            f"meant ({ours.sha256[:16]}…)"
        )


def check_vocabulary(theirs: int, ours: int, engine: str) -> None:
    """Refuses figures over another vocabulary.

    Raises:
        InputError: names both sizes.
    """
    if theirs != ours:
        raise InputError(f"{engine} has a vocabulary of {theirs} tokens, ours has {ours}")


def nll_and_greedy(logits_RV: np.ndarray, target_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """NLL float64 [R] and greedy int32 [R] of a control's logits [R, V], in float64, a row at a time."""
    nll, greedy = np.zeros(len(target_R)), np.zeros(len(target_R), np.int32)
    for row, (logits_V, target) in enumerate(zip(logits_RV, target_R, strict=True)):
        x = logits_V.astype(np.float64)
        top = x.max()
        nll[row], greedy[row] = np.log(np.exp(x - top).sum()) + top - x[target], x.argmax()
    return nll, greedy
