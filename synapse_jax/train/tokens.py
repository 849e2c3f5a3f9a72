"""Documents as one long row of tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.atomic_file import atomic_path
from synapse_jax.io.fetch import cache_folder, print_line
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.train.corpus import Corpus, Document, documents_sha256
from synapse_jax.train.vocabulary import PairVocabulary, read_vocabulary_json, train_vocabulary

_FORM = 1
"""Of what is cached; a change of how it is made changes this number, and so every name."""


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
    return _with_starts(np.concatenate(parts) if parts else np.empty(0, np.uint16), end)


def corpus_vocabulary(
    corpus: Corpus, size: int = 4096, *, log: Callable[[str], None] = print_line
) -> PairVocabulary:
    """The vocabulary of a corpus's train split, from the cache; trained at the first use.

    Args:
      corpus: the documents.
      size: V.
      log: receives a line when it is trained.

    Raises:
      InputError: as `train_vocabulary`; or the cache folder cannot be written.
      RunError: the disk is full.
    """
    path = _cache_path("vocabulary", documents_sha256(corpus.train), f"{size}.json")
    if path.is_file():
        try:
            vocabulary = read_vocabulary_json(path.read_bytes(), str(path))
            if vocabulary.size == size:
                return vocabulary
        except (OSError, InputError):
            log(f"{path}: cannot be used, training it again")
    log(f"training a vocabulary of {size} tokens on {len(corpus.train)} documents")
    vocabulary = train_vocabulary(corpus.train, size)
    _write(path, lambda part: part.write_text(vocabulary.to_json(), encoding="ascii"))
    return vocabulary


def cached_tokens(
    documents: Sequence[Document], vocabulary: PairVocabulary, *, log: Callable[[str], None] = print_line
) -> TokenStream:
    """As `token_stream`, from the cache; encoded at the first use.

    What is cached is checked against the length of every document.

    Raises:
      InputError: the cache folder cannot be written.
      RunError: the disk is full.
    """
    path = _cache_path("tokens", documents_sha256(documents), f"{vocabulary.sha256[:12]}.npy")
    stream = _load(path, documents, vocabulary)
    if stream is None:
        log(f"encoding {len(documents)} documents")
        stream = token_stream(documents, vocabulary.tokenizer)
        ids = stream.ids
        _write(path, lambda part: _save(part, ids))
    return stream


def _end_id(tokenizer: Tokenizer) -> int:
    if tokenizer.eos_id is None:
        raise InputError("the vocabulary has no end token to put between documents")
    if tokenizer.vocab_size > 1 << 16:
        raise InputError(f"a vocabulary of {tokenizer.vocab_size} tokens: at most {1 << 16} fit in uint16")
    return tokenizer.eos_id


def _with_starts(ids: np.ndarray, end: int) -> TokenStream:
    """Text never becomes the end token, so that every one ends a document."""
    after = np.flatnonzero(ids == end) + 1
    return TokenStream(ids, np.concatenate([[0], after[:-1]]).astype(np.int64) if len(after) else after)


def _cache_path(what: str, sha256: str, rest: str) -> Path:
    return cache_folder() / "texts" / f"{what}-{_FORM}-{sha256[:12]}-{rest}"


def _load(path: Path, documents: Sequence[Document], vocabulary: PairVocabulary) -> TokenStream | None:
    """The stream in a file; None where there is none, or not that of these documents."""
    try:
        ids = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if ids.dtype != np.uint16 or ids.ndim != 1 or ids.max(initial=0) > vocabulary.end_id:
        return None
    stream = _with_starts(ids, vocabulary.end_id)
    if len(stream.starts) != len(documents) or (len(ids) and ids[-1] != vocabulary.end_id):
        return None
    tokenizer = vocabulary.tokenizer
    sizes = np.array([len(tokenizer.decode_bytes([index])) for index in range(vocabulary.size)])
    sizes[vocabulary.end_id] = 0
    found = np.add.reduceat(sizes[ids], stream.starts) if len(ids) else sizes[:0]
    return stream if found.tolist() == [len(document.data) for document in documents] else None


def _save(path: Path, ids: np.ndarray) -> None:
    with open(path, "wb") as file:  # given a name, numpy would append its own suffix
        np.save(file, ids, allow_pickle=False)


def _write(path: Path, write: Callable[[Path], object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent}: the cache folder cannot be written: {error.strerror}; SYNAPSE_CACHE names another one"
        ) from None
    try:
        with atomic_path(path) as part:
            write(part)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from None
