"""Documents as one long row of tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.train.corpus import Document


@dataclasses.dataclass(frozen=True, eq=False)
class TokenStream:
    """Documents one after the other, each ended by the end token."""

    ids: np.ndarray
    """uint16 [T], tokens."""
    starts: np.ndarray
    """int64, index of each document's first token; that of an empty stream is empty."""


def token_stream(documents: Sequence[Document], tokenizer: Tokenizer) -> TokenStream:
    """Encodes documents; no text in them becomes a control token.

    Raises:
      InputError: the vocabulary has no end token, more tokens than uint16 can tell apart, or no token for a
        part of a document.
    """
    end = _end_id(tokenizer)
    parts = []
    for document in documents:
        if lost := tokenizer.count_lost_bytes(document.data):
            raise InputError(f"{document.name}: the vocabulary has no token for {lost} of its bytes")
        ids = tokenizer.encode(document.data, add_special=False)
        parts.append(np.array([*ids, end], np.uint16))
    return split_stream(np.concatenate(parts) if parts else np.empty(0, np.uint16), end)


def _end_id(tokenizer: Tokenizer) -> int:
    if tokenizer.eos_id is None:
        raise InputError("the vocabulary has no end token to put between documents")
    if tokenizer.vocab_size > 1 << 16:
        raise InputError(f"a vocabulary of {tokenizer.vocab_size} tokens: at most {1 << 16} fit in uint16")
    return tokenizer.eos_id


def split_stream(ids: np.ndarray, end: int) -> TokenStream:
    """The stream of tokens that are known: text never becomes the end token, so each ends a document.

    Args:
      ids: uint16 [T], of which the last is the end token.
      end: the end token.
    """
    after = np.flatnonzero(ids == end) + 1
    return TokenStream(ids, np.concatenate([[0], after[:-1]]).astype(np.int64) if len(after) else after)
