"""Byte-pair vocabularies of GGUF files.

Words are merged by the `tokenizers` library; all else is done here, as llama.cpp does it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import models

from synapse_jax.errors import InputError
from synapse_jax.io.byte_pieces import ALPHABET, BYTE_OF
from synapse_jax.io.pre_tokenizers import PreTokenizer
from synapse_jax.io.quoting import quote
from synapse_jax.io.utf8 import lax_text, text_bytes
from synapse_jax.io.vocabulary import CONTROL, UNKNOWN, Vocabulary
from synapse_jax.io.word_splits import split_words

_MERGES = "tokenizer.ggml.merges"


class PairMerger:
    """Plain text to ids. No text becomes a control or unknown token, whatever the merges say.

    Args:
      ids: Pieces that text may become, see `plain_ids`.
      model: Their merges.
      rule: How text is cut into words.
    """

    def __init__(self, ids: dict[str, int], model: models.BPE, rule: PreTokenizer):
        self._rule = rule
        self._ids = ids
        self._engine = tokenizers.Tokenizer(model)
        self._bytes = [ids.get(f"<0x{byte:02X}>") for byte in range(256)] if rule.raw else [None] * 256
        self._alphabet = {piece for piece in ids if len(piece) == 1}
        self._absent = _one_of(set(BYTE_OF) - self._alphabet)

    def count_lost_bytes(self, data: bytes) -> int:
        """How many bytes of a text get no token."""
        text = self._spaced(lax_text(data))
        absent = self._missing(text)
        if absent is None:
            return 0
        if not self._rule.raw:
            return len(absent.findall(spell(text)))
        sizes = [(len(text_bytes(gap)), len(self._spell_bytes(gap))) for gap in absent.findall(text)]
        return sum(size - spelled for size, spelled in sizes)

    def encode_parts(self, parts: Sequence[bytes | int]) -> list[int]:
        """Ids of stretches of text, and of tokens that are already known, in order."""
        ids: list[int] = []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self._encode(lax_text(part)))
        return ids

    def _encode(self, text: str) -> list[int]:
        rule = self._rule
        text = self._spaced(text)
        absent = self._missing(text)
        words = split_words(text, rule.steps)
        known: list[str] = []  # stretches for the library to merge
        found: dict[str, list[list[int]]] = {}  # of a word, the ids of its stretches
        wanted: list[list[int]] = []  # where those of `known` go
        for word in dict.fromkeys(words):
            found[word] = []
            piece = word if rule.raw else spell(word)
            whole = rule.ignore_merges or (rule.whole_lines and not word.strip("\n"))
            if whole and piece in self._ids:
                found[word].append([self._ids[piece]])
                continue
            for at, stretch in enumerate(absent.split(piece) if absent else [piece]):
                if at % 2:
                    found[word].append(self._spell_bytes(stretch))
                elif stretch:
                    known.append(stretch)
                    wanted.append([])
                    found[word].append(wanted[-1])
        encoding = self._engine.encode(known, is_pretokenized=True, add_special_tokens=False)
        for at, index in zip(encoding.word_ids, encoding.ids, strict=True):
            wanted[at].append(index)  # type: ignore[index]
        ids = {word: [*itertools.chain(*stretches)] for word, stretches in found.items()}
        return [*itertools.chain.from_iterable([ids[word] for word in words])]

    def _spaced(self, text: str) -> str:
        return text.replace(" ", "▁") if self._rule.raw else text

    def _missing(self, text: str) -> re.Pattern[str] | None:
        """What stands between its neighbours, unmerged, because there is no piece for it: one character."""
        return _one_of(set(text) - self._alphabet) if self._rule.raw else self._absent

    def _spell_bytes(self, character: str) -> list[int]:
        found = (self._bytes[byte] for byte in text_bytes(character))
        return [index for index in found if index is not None]


def _one_of(characters: set[str]) -> re.Pattern[str] | None:
    return re.compile(f"([{re.escape(''.join(sorted(characters)))}])") if characters else None


def spell(word: str) -> str:
    """A word in the byte alphabet."""
    return word.encode("utf-8", "surrogatepass").decode("latin-1").translate(ALPHABET)


def plain_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Ids of the pieces that plain text may become."""
    ids: dict[Any, int] = dict(vocabulary.ids)
    if set(map(type, ids)) != {str}:
        ids = {piece: index for piece, index in ids.items() if type(piece) is str}
    for index in vocabulary.of_type(CONTROL, UNKNOWN):
        ids.pop(vocabulary.pieces[index], None)
    return ids


def build_merger(
    metadata: Mapping[str, Any],
    vocabulary: Vocabulary,
    rule: PreTokenizer,
    source: str,
    warnings: list[str],
) -> PairMerger:
    """The merger of a file; adds to `warnings` what was unusual in its list of merges.

    Raises:
      InputError: there are none, one is not two pieces, or it names a piece that the vocabulary lacks.
    """
    stored = metadata.get(_MERGES)
    if stored is None:
        raise InputError(f"{source}: {_MERGES} is missing")
    if not isinstance(stored, Sequence) or isinstance(stored, str | bytes):
        raise InputError(f"{source}: {_MERGES} is {quote(stored)}, not a list of pairs")
    ids = plain_ids(vocabulary)
    pairs = _pairs_at_once(stored)
    if pairs is not None:
        # The library looks up every piece; only when one is missing is it worth finding out which.
        with contextlib.suppress(Exception):
            return PairMerger(ids, models.BPE(vocab=ids, merges=pairs), rule)
    pairs = _pairs_one_by_one(stored, vocabulary, source, warnings)
    return PairMerger(ids, models.BPE(vocab=ids, merges=pairs), rule)


def _pairs_at_once(stored: Sequence[Any]) -> list[tuple[str, str]] | None:
    """The pairs of a list in which nothing is unusual, else None; it may have half a million lines."""
    if set(map(type, stored)) != {str}:
        return None
    pieces = " ".join(map(str, stored)).split(" ")
    pairs = list(zip(pieces[::2], pieces[1::2], strict=False))
    two_pieces = list(map(" ".join, pairs)) == list(stored)
    return pairs if two_pieces and len(set(stored)) == len(stored) else None


def _pairs_one_by_one(
    stored: Sequence[Any], vocabulary: Vocabulary, source: str, warnings: list[str]
) -> list[tuple[str, str]]:
    ids = vocabulary.ids
    special = {vocabulary.pieces[index] for index in vocabulary.of_type(CONTROL, UNKNOWN)}
    merges: dict[tuple[str, str], None] = {}
    left_out = 0
    for index, line in enumerate(stored):
        # The first space after the first character: a piece may itself begin with a space.
        cut = line.find(" ", 1) if isinstance(line, str) else -1
        left, right = (line[:cut], line[cut + 1 :]) if cut > 0 else ("", "")
        if not left or not right:
            raise InputError(f"{source}: {_MERGES}[{index}] {quote(line)} is not two pieces")
        made = left + right
        if left not in ids or right not in ids or made not in ids:
            piece = next(piece for piece in (left, right, made) if piece not in ids)
            raise InputError(
                f"{source}: {_MERGES}[{index}] {quote(line)} needs {quote(piece)}, not in the vocabulary"
            )
        if left in special or right in special or made in special:
            left_out += 1
            continue
        merges[left, right] = None
    if left_out:
        warnings.append(
            f"{source}: {_MERGES} has {left_out} pairs with a control token, left out: text must not make one"
        )
    if len(merges) + left_out != len(stored):
        repeated = len(stored) - left_out - len(merges)
        warnings.append(f"{source}: {_MERGES} repeats {repeated} of its pairs; the first one counts")
    return list(merges)
