"""Byte-pair vocabularies of GGUF files: words are merged by the `tokenizers` library, all else is llama.cpp's way."""

from __future__ import annotations

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
from synapse_jax.io.utf8 import lax_text
from synapse_jax.io.vocabulary import CONTROL, UNKNOWN, Vocabulary
from synapse_jax.io.word_splits import split_words

_MERGES = "tokenizer.ggml.merges"


class PairMerger:
    """Plain text to ids. No text becomes a control or unknown token, whatever the merges say.

    Args:
      vocabulary: Its pieces; those that are not text are never reached.
      merges: Pairs of pieces that both exist, with what they make; first come, first merged.
      rule: How text is cut into words.
    """

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[tuple[str, str]], rule: PreTokenizer):
        self._rule = rule
        self._ids = plain_ids(vocabulary)
        self._engine = tokenizers.Tokenizer(models.BPE(vocab=self._ids, merges=merges))
        self._bytes = [self._ids.get(f"<0x{byte:02X}>") for byte in range(256)]
        # A character without a piece stands between its neighbours: they do not merge.
        alphabet = "".join(re.escape(piece) for piece in self._ids if len(piece) == 1)
        absent = "".join(re.escape(piece) for piece in BYTE_OF if piece not in self._ids)
        if rule.raw:
            self._missing = re.compile(f"([^{alphabet}])" if alphabet else "((?s:.))")
        else:
            self._missing = re.compile(f"([{absent}])") if absent else None

    def count_lost_bytes(self, data: bytes) -> int:
        """How many bytes of a text get no token: SmolLM2 has none for U+0004 and a few other control characters."""
        if self._missing is None:
            return 0
        text = lax_text(data)
        text = text.replace(" ", "▁") if self._rule.raw else spell(text)
        missing = self._missing.findall(text)
        if not self._rule.raw:
            return len(missing)
        return sum(
            len(character.encode("utf-8", "surrogatepass")) - len(self._spell_bytes(character))
            for character in missing
        )

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
        words = split_words(text.replace(" ", "▁") if rule.raw else text, rule.steps)
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
            for at, stretch in enumerate(self._missing.split(piece) if self._missing else [piece]):
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

    def _spell_bytes(self, character: str) -> list[int]:
        if not self._rule.raw:
            return []
        found = (self._bytes[byte] for byte in character.encode("utf-8", "surrogatepass"))
        return [index for index in found if index is not None]


def spell(word: str) -> str:
    """A word in the byte alphabet."""
    return word.encode("utf-8", "surrogatepass").decode("latin-1").translate(ALPHABET)


def plain_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Ids of the pieces that plain text may become."""
    ids = {piece: index for piece, index in vocabulary.ids.items() if type(piece) is str}
    for index in vocabulary.of_type(CONTROL, UNKNOWN):
        ids.pop(vocabulary.pieces[index], None)  # type: ignore[arg-type]
    return ids


def read_merges(
    metadata: Mapping[str, Any], vocabulary: Vocabulary, source: str, warnings: list[str]
) -> list[tuple[str, str]]:
    """The merges of a file, each once.

    Raises:
      InputError: there are none, one is not two pieces, or it names a piece that the vocabulary lacks.
    """
    stored = metadata.get(_MERGES)
    if stored is None:
        raise InputError(f"{source}: {_MERGES} is missing")
    if not isinstance(stored, Sequence) or isinstance(stored, str | bytes):
        raise InputError(f"{source}: {_MERGES} is {quote(stored)}, not a list of pairs")
    ids = vocabulary.ids
    special = {vocabulary.pieces[index] for index in vocabulary.of_type(CONTROL, UNKNOWN)}
    merges: dict[tuple[str, str], None] = {}
    left_out = 0
    for index, line in enumerate(stored):
        # The first space after the first character: a piece may itself begin with a space.
        cut = line.find(" ", 1) if isinstance(line, str) else -1
        left, right = line[:cut], line[cut + 1 :]
        if cut < 1 or not right:
            raise InputError(f"{source}: {_MERGES}[{index}] {quote(line)} is not two pieces")
        made = left + right
        if left not in ids or right not in ids or made not in ids:
            piece = next(piece for piece in (left, right, made) if piece not in ids)
            raise InputError(
                f"{source}: {_MERGES}[{index}] {quote(line)} needs {quote(piece)}, not in the vocabulary"
            )
        if special and (left in special or right in special or made in special):
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
