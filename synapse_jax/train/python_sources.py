"""The corpus that small decoders are trained on by default: the sources of three Python packages.

Django 5.2.8 (BSD-3-Clause), NetworkX 3.4.2 (BSD-3-Clause) and Twisted 24.11.0 (MIT): all their `.py` files,
tests included. They are kept in the cache as one zip archive with a member for each document. What is read
from it is checked against the corpus's own digest each time, so a damaged archive is made again.
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.atomic_file import atomic_path
from synapse_jax.io.fetch import cache_folder, print_line, work_folder
from synapse_jax.io.wheels import Wheel, download_wheel
from synapse_jax.train.corpus import Corpus, Document, make_corpus

WHEELS = (
    Wheel(
        requirement="Django==5.2.8",
        size=8289692,
        sha256="37e687f7bd73ddf043e2b6b97cfe02fcbb11f2dbb3adccc6a2b18c6daa054d7f",
    ),
    Wheel(
        requirement="networkx==3.4.2",
        size=1723263,
        sha256="df5d4365b724cf81b8c6a7312509d0c22386097011ad1abe274afd5e9d3bbc5f",
    ),
    Wheel(
        requirement="Twisted==24.11.0",
        size=3188667,
        sha256="fe403076c71f04d5d2d789a755b687c5637ec3bcd3b2b8252d76f2ba65f54261",
    ),
)
NAME = "Python sources of Django 5.2.8, NetworkX 3.4.2, Twisted 24.11.0"
LICENSE = "BSD-3-Clause (Django, NetworkX), MIT (Twisted)"
SHA256 = "61c4d39dfcd70d0a89c1679f614279cd76548915fa72efd00c22d2096b777582"
"""`Corpus.sha256` of what the wheels hold."""

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""Of members, so that the archive does not depend on when it was made."""
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError)
"""What reading a damaged archive raises."""


def python_sources(*, log: Callable[[str], None] = print_line, bar: bool | None = None) -> Corpus:
    """The default corpus, from the cache; fetched at the first use.

    Args:
      log: Receives plain progress lines.
      bar: Show pip's own progress bar; None: when standard error is a terminal.

    Raises:
      InputError: the cache folder cannot be written.
      RunError: a download failed, or it is not what it is meant to be. Nothing half-written stays.
    """
    archive = cache_folder() / "texts" / f"python-sources-{SHA256[:12]}.zip"
    corpus = _cached(archive)
    if corpus is not None:
        return corpus
    with work_folder(archive.parent, log) as work:
        corpus = _cached(archive)  # another process may have made it while this one waited
        if corpus is None:
            documents = list(_fetch(work, log, sys.stderr.isatty() if bar is None else bar))
            corpus = _checked(documents)
            _save(documents, archive)
            log(f"saved {archive}")
    return corpus


def read_sources(archive: Path) -> Iterator[Document]:
    """Every `.py` member of a zip archive, named by its path, in the order of names.

    Raises:
      RunError: the archive is damaged.
    """
    try:
        with zipfile.ZipFile(archive) as contents:
            for name in sorted(name for name in contents.namelist() if name.endswith(".py")):
                yield Document(name, contents.read(name))
    except _DAMAGED as error:
        raise RunError(f"{archive.name}: cannot be read: {error}") from None


def _cached(archive: Path) -> Corpus | None:
    if not archive.is_file():
        return None
    try:
        return _checked(read_sources(archive))
    except (OSError, InputError, RunError):
        return None


def _checked(documents: Iterable[Document]) -> Corpus:
    corpus = make_corpus(NAME, documents, license=LICENSE)
    if corpus.sha256 != SHA256:
        raise RunError(
            f"{NAME}: {len(corpus.documents)} documents with sha256 {corpus.sha256}, expected {SHA256}"
        )
    return corpus


def _fetch(work: Path, log: Callable[[str], None], bar: bool) -> Iterator[Document]:
    for number, wheel in enumerate(WHEELS):
        folder = work / str(number)
        try:
            folder.mkdir()
            yield from read_sources(download_wheel(wheel, folder, log=log, bar=bar))
        except OSError as error:
            raise RunError(
                f"{wheel.requirement}: cannot be fetched: {error.strerror or error}; "
                "SYNAPSE_CACHE names another folder"
            ) from None


def _save(documents: list[Document], archive: Path) -> None:
    """Those that `make_corpus` leaves out are kept too, so that they are counted again."""
    try:
        with atomic_path(archive) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as contents:
            for document in documents:
                member = zipfile.ZipInfo(document.name, _FIXED_DATE)
                member.compress_type = zipfile.ZIP_DEFLATED
                contents.writestr(member, document.data)
    except OSError as error:
        raise RunError(f"{archive}: cannot be written: {error.strerror or error}") from None
