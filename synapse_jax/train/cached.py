"""Vocabulary and tokens of a corpus, kept in the cache: each takes a minute to make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.atomic_file import atomic_path
from synapse_jax.io.fetch import cache_folder, print_line
from synapse_jax.train.corpus import Corpus, Document, documents_sha256
from synapse_jax.train.tokens import TokenStream, split_stream, token_stream
from synapse_jax.train.vocabulary import PairVocabulary, read_vocabulary_json, train_vocabulary

_FORM = 1
"""Of what is cached; a change of how it is made changes this number, and so every name."""


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
    stream = split_stream(ids, vocabulary.end_id)
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
            f"{path.parent}: the cache folder cannot be written: {error.strerror}; "
            "SYNAPSE_CACHE names another one"
        ) from None
    try:
        with atomic_path(path) as part:
            write(part)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror}") from None
