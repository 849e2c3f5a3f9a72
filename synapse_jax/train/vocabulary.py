"""Byte-pair vocabularies: trained on documents, and in the forms that model files hold them in.

Words are cut as GPT-2 cuts them (`gpt-2` in llama.cpp) and spelled in its alphabet of bytes. The tokens are
the 256 bytes, then what the merges make in the order in which they were found, and last the token that ends a
text.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from synapse_jax.errors import InputError
from synapse_jax.io.byte_pieces import BYTE_OF
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer
from synapse_jax.io.vocabulary import CONTROL, NORMAL
from synapse_jax.spec.digest import canonical_json, sha256_text
from synapse_jax.train.corpus import Document

END = "<|endoftext|>"
"""Piece of the token that ends a text."""
PRE_TOKENIZER = "gpt-2"
"""How words are cut, by llama.cpp's name."""
LEAST_SIZE = len(BYTE_OF) + 1
"""Tokens of a vocabulary without a merge."""


@dataclasses.dataclass(frozen=True)
class PairVocabulary:
    """A byte-level vocabulary of V tokens."""

    pieces: tuple[str, ...] = dataclasses.field(repr=False)
    """Piece of each id in GPT-2's byte alphabet; the first 256 are the bytes, the last is `END`."""
    merges: tuple[tuple[str, str], ...] = dataclasses.field(repr=False)
    """Pairs in the order in which they are applied."""

    @property
    def size(self) -> int:
        """V, number of tokens."""
        return len(self.pieces)

    @property
    def end_id(self) -> int:
        """The token that ends a text, and so stands before the next."""
        return self.size - 1

    @functools.cached_property
    def sha256(self) -> str:
        """Identity of pieces and merges."""
        return sha256_text(canonical_json(self))

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The engine's tokenizer of this vocabulary."""
        return build_tokenizer(self.metadata(), source="the trained vocabulary")

    def metadata(self) -> dict[str, Any]:
        """The keys that a GGUF file holds it under."""
        values = {
            "model": "gpt2",
            "pre": PRE_TOKENIZER,
            "tokens": list(self.pieces),
            "token_type": [NORMAL] * self.end_id + [CONTROL],
            "merges": [f"{left} {right}" for left, right in self.merges],
            "bos_token_id": self.end_id,
            "eos_token_id": self.end_id,
            "add_bos_token": False,
        }
        return {f"tokenizer.ggml.{key}": value for key, value in values.items()}

    def library(self) -> tokenizers.Tokenizer:
        """It in the `tokenizers` library, whose text is the tokenizer.json of a Hugging Face folder."""
        ids = {piece: index for index, piece in enumerate(self.pieces[: self.end_id])}
        engine = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=list(self.merges)))
        engine.pre_tokenizer = _byte_level()
        engine.decoder = decoders.ByteLevel()
        engine.add_special_tokens([END])
        return engine

    def to_json(self) -> str:
        """Text that `read_vocabulary_json` reads: JSON of `pieces` and `merges`."""
        return canonical_json(self)


def train_vocabulary(documents: Iterable[Document], size: int = 4096) -> PairVocabulary:
    """Finds the merges that shorten documents most, pair by pair (byte-pair encoding).

    The same documents in the same order give the same vocabulary in every process.

    Args:
      documents: of the train split only.
      size: V.

    Raises:
      InputError: fewer tokens than bytes are asked for, or the documents have too few pairs that repeat.
    """
    if size < LEAST_SIZE:
        raise InputError(
            f"vocabulary of {size} tokens: at least {LEAST_SIZE} are needed, for bytes and an end"
        )
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = _byte_level()
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1,
        min_frequency=2,
        # It gives them the first ids, in the order of their code points.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator((document.data.decode() for document in documents), trainer)
    ids = engine.get_vocab()
    if len(ids) != size - 1:
        raise InputError(f"vocabulary of {size} tokens: the documents are enough for {len(ids) + 1} only")
    merges = json.loads(engine.to_str())["model"]["merges"]
    return _checked([*sorted(ids, key=ids.__getitem__), END], merges, "the trained vocabulary")


def read_vocabulary_json(text: str | bytes, source: str) -> PairVocabulary:
    """Reads what `PairVocabulary.to_json` wrote.

    Raises:
      InputError: it is something else.
    """
    try:
        stored = json.loads(text)
        pieces, merges = stored["pieces"], stored["merges"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{source}: is not a JSON object with pieces and merges") from None
    return _checked(pieces, merges, source)


def _checked(pieces: Any, merges: Any, source: str) -> PairVocabulary:
    """A vocabulary of lists, with all that the class promises; InputError if they break it."""
    texts = isinstance(pieces, list) and all(isinstance(piece, str) for piece in pieces)
    if not texts or len(set(pieces)) != len(pieces) or len(pieces) < LEAST_SIZE or pieces[-1] != END:
        raise InputError(
            f"{source}: pieces are not a list of {LEAST_SIZE} or more distinct texts that ends in {END}"
        )
    if set(pieces[: len(BYTE_OF)]) != set(BYTE_OF):
        raise InputError(f"{source}: the first {len(BYTE_OF)} pieces are not the bytes")
    known = set(pieces[:-1])
    for index, merge in enumerate(merges if isinstance(merges, list) else [merges]):
        pair = list(merge) if isinstance(merge, list) else []
        if len(pair) != 2 or not {*map(str, pair), "".join(map(str, pair))} <= known:
            raise InputError(f"{source}: merges[{index}] is not two pieces that make a third")
    return PairVocabulary(tuple(pieces), tuple((left, right) for left, right in merges))


def _byte_level() -> pre_tokenizers.PreTokenizer:
    """GPT-2's words in its alphabet, without a space before the text."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
