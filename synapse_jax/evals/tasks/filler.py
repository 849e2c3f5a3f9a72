"""A haystack in a model's tokens: where its sentences end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.evals.tasks.haystack import Haystack
from synapse_jax.io.tokenizer import Tokenizer

BYTES_A_TOKEN = 8
"""More than most texts have; if it is too few, twice as many bytes are encoded."""


@dataclasses.dataclass(frozen=True)
class Filler:
    """The first sentences of a haystack, which fill a prompt."""

    haystack: Haystack
    sentences: tuple[str, ...]
    """As many as the longest prompt may need."""
    left_out: int
    """Sentences among them that were left out, because the vocabulary cannot give them back: SentencePiece
    takes `▁` for a space."""
    ends_N: np.ndarray
    """int64 [N + 1], tokens of the first n sentences of a whole text."""

    def fitting(self, tokens: int) -> int:
        """How many sentences fit into so many tokens.

        Raises:
            InputError: more tokens are asked for than the haystack has.
        """
        whole = int(self.ends_N[-1])
        if tokens > whole:
            raise InputError(f"the haystack has {whole} tokens, {tokens} are to be filled: give longer files")
        return int(np.searchsorted(self.ends_N, tokens, "right")) - 1

    def sentence_at(self, depth: float, sentences: int) -> int:
        """How many of so many sentences come before a depth: the end that is nearest to it, in tokens."""
        target = depth * self.ends_N[sentences]
        return int(np.abs(self.ends_N[: sentences + 1] - target).argmin())


def make_filler(haystack: Haystack, tokenizer: Tokenizer, tokens: int) -> Filler:
    """Counts the tokens of the beginning of a haystack, which is encoded as one text.

    Args:
        haystack: the text.
        tokenizer: the model's.
        tokens: most tokens that are to be filled.

    Raises:
        InputError: the tokens do not give the text back, so nothing could be found in them.
    """
    sizes_N = np.cumsum([len(sentence.encode()) for sentence in haystack.sentences])
    size = BYTES_A_TOKEN * tokens
    while True:
        count = int(np.searchsorted(sizes_N, size)) + 1
        first = haystack.sentences[:count]
        kept, ends_N = _counted(first, tokenizer)
        if ends_N[-1] > tokens or count >= len(haystack.sentences):
            return Filler(haystack, kept, len(first) - len(kept), ends_N)
        size *= 2


def byte_lengths(tokenizer: Tokenizer, ids: Sequence[int]) -> np.ndarray:
    """Bytes that each token stands for, int64 [n]."""
    known = {token: len(tokenizer.decode_bytes([token])) for token in dict.fromkeys(ids)}
    return np.array([known[token] for token in ids], np.int64)


def _counted(sentences: tuple[str, ...], tokenizer: Tokenizer) -> tuple[tuple[str, ...], np.ndarray]:
    """The sentences that survive, and the tokens [N + 1] of the first n of them."""
    kept, ids = sentences, _survives("".join(sentences), tokenizer)
    if ids is None:
        kept = tuple(sentence for sentence in sentences if _survives(sentence, tokenizer) is not None)
        ids = _survives("".join(kept), tokenizer)
    if ids is None or not kept:
        raise InputError("the haystack does not survive this vocabulary: its tokens decode to another text")
    ends_T = np.concatenate([[0], np.cumsum(byte_lengths(tokenizer, ids))])
    starts_N = np.concatenate([[0], np.cumsum([len(sentence.encode()) for sentence in kept])])
    lead = ends_T[-1] - starts_N[-1]
    ends_N = np.searchsorted(ends_T, lead + starts_N)
    ends_N[0] = 0
    return kept, ends_N


def _survives(text: str, tokenizer: Tokenizer) -> list[int] | None:
    """Tokens of a text; None if they do not give it back. Some vocabularies put one space before it."""
    ids = tokenizer.encode(text, add_special=False)
    decoded, data = tokenizer.decode_bytes(ids), text.encode()
    return ids if decoded in (data, b" " + data) else None
