"""The text that facts are hidden in."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import read_bytes, strict_text

PACKAGE = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "BUILD.md", "CHANGELOG.md")
LONGEST_SENTENCE = 300
"""Characters after which a sentence is cut at a space."""
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+|\n(?:[ \t]*\n)*")
_WORD_END = re.compile(r" +")


@dataclasses.dataclass(frozen=True)
class Haystack:
    """Text files, one after the other."""

    text: str
    """The files' texts, with an empty line between them."""
    files: tuple[tuple[str, str], ...]
    """Name and SHA-256 of each."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the text's UTF-8, hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @functools.cached_property
    def sentences(self) -> tuple[str, ...]:
        """The text in pieces: lines, and sentences within them, of 300 characters at most where spaces allow.

        Together they are the text. White space after a piece belongs to it.
        """
        pieces, first = [], 0
        for end in [match.end() for match in _SENTENCE_END.finditer(self.text)] + [len(self.text)]:
            while end - first > LONGEST_SENTENCE:
                match = _WORD_END.search(self.text, first + LONGEST_SENTENCE - 100, end)
                if match is None or match.end() >= end:
                    break
                pieces.append(self.text[first : match.end()])
                first = match.end()
            if end > first:
                pieces.append(self.text[first:end])
                first = end
        return tuple(pieces)

    @functools.cached_property
    def folded(self) -> str:
        """The text without differences of case."""
        return self.text.casefold()

    def check(self, sha256: str | None) -> None:
        """Refuses another text than the one that is meant.

        Raises:
            InputError: names both digests.
        """
        if sha256 is not None and sha256 != self.sha256:
            raise InputError(f"the haystack has sha256 {self.sha256}, {sha256} was asked for")


def read_haystack(paths: Sequence[str]) -> Haystack:
    """Text files in the order given.

    Raises:
        InputError: a file cannot be read, is not UTF-8, or holds nothing but white space.
    """
    return _join([(Path(path).name, shown_path(path), read_bytes(path)) for path in paths])


def project_haystack() -> Haystack:
    """This project's documents, where they lie beside its package, then its code in the order of the files.

    It changes with the project, so its digest goes into every record. The package that is installed
    without the documents begins with the code. The tasks' own files are left out: they tell what to look for.
    """
    root = PACKAGE.parent
    is_checkout = all((root / name).is_file() for name in (*DOCUMENTS, "pyproject.toml"))
    documents = [root / name for name in DOCUMENTS] if is_checkout else []
    own = Path(__file__).parent
    code = sorted(
        (path for path in PACKAGE.rglob("*.py") if own not in path.parents),
        key=lambda path: path.relative_to(PACKAGE).as_posix(),
    )
    files = [*documents, *code]
    return _join([(path.relative_to(root).as_posix(), shown_path(path), read_bytes(path)) for path in files])


def _join(files: Sequence[tuple[str, str, bytes]]) -> Haystack:
    """A haystack of (name, name for messages, bytes)."""
    texts = [strict_text(data, shown).strip() for _, shown, data in files]
    if not any(texts):
        raise InputError(f"{', '.join(shown for _, shown, _ in files)}: no text to hide anything in")
    digests = tuple((name, hashlib.sha256(data).hexdigest()) for name, _, data in files)
    return Haystack("\n\n".join(text for text in texts if text) + "\n", digests)
