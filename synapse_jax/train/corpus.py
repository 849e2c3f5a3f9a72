"""Documents to train on, and those that are held out.

A document's SHA-256 decides all: its place in the order, on which side of the split it falls, and whether it
is there already. So equal texts make equal corpora, whatever the files are called and wherever they lie.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import read_bytes
from synapse_jax.io.utf8 import first_bad_byte

HELD_OUT_SHARE = 0.05
"""Share of documents that are held out, expected."""
_LEADING_DIGITS = 13
"""Hexadecimal digits of a digest that are compared with the share: 52 bits, which a float64 holds exactly."""


@dataclasses.dataclass(frozen=True)
class Document:
    """One text."""

    name: str
    """Where it is from, for people."""
    data: bytes = dataclasses.field(repr=False)
    """The text as it is, valid UTF-8."""

    @functools.cached_property
    def sha256(self) -> str:
        """Digest of the text, hex."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def is_held_out(self) -> bool:
        """Whether it is held out: its digest, as a fraction of 1, is below `HELD_OUT_SHARE`."""
        return int(self.sha256[:_LEADING_DIGITS], 16) < HELD_OUT_SHARE * 16**_LEADING_DIGITS


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Distinct documents with their two splits. Made by `make_corpus`."""

    name: str
    """What it is, for people and records."""
    license: str
    """Licences of the texts; empty where it is not known."""
    documents: tuple[Document, ...] = dataclasses.field(repr=False)
    """Ordered by digest, which is as good as shuffled: any stretch is a fair sample."""
    repeated: int
    """Documents left out because an equal one is there."""
    empty: int
    """Documents left out because they have no bytes."""
    not_utf8: int
    """Documents left out because they are not valid UTF-8."""

    @functools.cached_property
    def train(self) -> tuple[Document, ...]:
        """What a model may learn from."""
        return tuple(document for document in self.documents if not document.is_held_out)

    @functools.cached_property
    def held_out(self) -> tuple[Document, ...]:
        """What no model and no vocabulary has seen."""
        return tuple(document for document in self.documents if document.is_held_out)

    @property
    def sha256(self) -> str:
        """Identity of the texts: `documents_sha256` of all of them."""
        return documents_sha256(self.documents)


def make_corpus(
    name: str, documents: Iterable[Document], *, license: str = "", source: str | None = None
) -> Corpus:
    """Orders documents and leaves out what cannot be used; of equal ones the first name stays.

    Args:
      name: see `Corpus`.
      documents: in any order.
      license: see `Corpus`.
      source: what messages call it; None: by its name.

    Raises:
      InputError: a split is left without a document.
    """
    distinct: dict[str, Document] = {}
    repeated = empty = not_utf8 = 0
    for document in documents:
        if not document.data:
            empty += 1
        elif first_bad_byte(document.data) is not None:
            not_utf8 += 1
        elif distinct.setdefault(document.sha256, document) is not document:
            repeated += 1
    ordered = tuple(distinct[sha256] for sha256 in sorted(distinct))
    corpus = Corpus(name, license, ordered, repeated, empty, not_utf8)
    if not corpus.train or not corpus.held_out:
        raise InputError(
            f"{source or name}: {len(ordered)} documents make {len(corpus.train)} to train on and "
            f"{len(corpus.held_out)} held out; both need at least one "
            f"(left out: {empty} empty, {not_utf8} not UTF-8, {repeated} repeated)"
        )
    return corpus


def documents_from_folder(folder: str | os.PathLike[str]) -> Corpus:
    """A corpus of the files in a folder and in the folders below it, by the folder's name.

    Every file is one document. Files and folders whose names begin with a dot are not looked at, nor what
    links to folders lead to.

    Raises:
      InputError: it is no folder, a file cannot be read, or a split is left without a document.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{shown_path(root)}: is not a folder of text files")
    documents = (Document(name, read_bytes(path)) for name, path in _files(root))
    return make_corpus(shown_path(root.resolve().name), documents, source=shown_path(root))


def documents_sha256(documents: Iterable[Document]) -> str:
    """Identity of texts in their order: SHA-256 of one line a document, its digest in hex."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.sha256}\n".encode())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Name below the root and path of each file, in the order of names."""
    found = []
    for parent, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [Path(parent) / name for name in names if not name.startswith(".")]
        found += [(path.relative_to(root).as_posix(), path) for path in paths]
    return iter(sorted(found))


def _refuse(error: OSError) -> None:
    raise InputError(f"{shown_path(error.filename)}: cannot be read: {error.strerror}")
