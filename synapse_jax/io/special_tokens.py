"""Special tokens in a text: cut out first, the longest token everywhere, then the next one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from synapse_jax.io.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary

_WHITE = b" \t\n\r\f\v"


@dataclasses.dataclass(frozen=True)
class SpecialToken:
    """A token that matches its own text."""

    text: bytes
    """UTF-8; bytes that are not text stay as they are."""
    index: int
    """Its id."""
    plain: bool
    """A user-defined token: it matches where control tokens do not."""
    strips_left: bool = False
    """White space before it goes with it."""
    strips_right: bool = False
    """White space after it goes with it."""


def read_specials(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> list[SpecialToken]:
    """The special tokens of a GGUF vocabulary.

    Which of them take white space with them is in no file: llama.cpp goes by the model's name.
    """
    name, pre = (str(metadata.get(key, "")) for key in ("general.name", "tokenizer.ggml.pre"))
    phi3 = "phi-3" in name.lower() or "phi3" in name.lower()
    keeps_space = ("<unk>", "<s>", "<|endoftext|>") if phi3 else vocabulary.ids
    mask = None
    if any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code")):
        mask = "<mask>"
    elif "modern-bert" in name.lower():
        mask = "[MASK]"
    specials = []
    for index in vocabulary.of_type(CONTROL, UNKNOWN, USER_DEFINED):
        piece = vocabulary.pieces[index]
        specials.append(
            SpecialToken(
                piece if isinstance(piece, bytes) else piece.encode(),
                index,
                plain=bool(vocabulary.types[index] == USER_DEFINED),
                strips_left=piece == mask,
                strips_right=piece not in keeps_space,
            )
        )
    return specials


class SpecialTokens:
    """The special tokens of a vocabulary, ready to be cut out of texts."""

    def __init__(self, tokens: Iterable[SpecialToken]):
        # The longest in bytes first, equals by id.
        self._tokens = sorted(tokens, key=lambda token: (-len(token.text), token.index))
        # Gemma has 6,413, nearly all of which begin alike: what does not begin in a text is not in it.
        self._by_start: dict[bytes, list[int]] = {}
        for order, token in enumerate(self._tokens):
            self._by_start.setdefault(token.text[:2], []).append(order)

    def cut(self, data: bytes, *, control: bool, guard: str | None = None) -> list[bytes | int]:
        """Plain stretches and token ids, in order; no stretch is empty.

        Args:
          data: UTF-8, or any bytes.
          control: Whether control tokens match, or only user-defined ones.
          guard: A character that is taken out of the plain stretches afterwards: text
            in which it hides a token's name then holds that name, as plain text.
        """
        parts: list[bytes | int] = [data] if data else []
        found = [orders for start, orders in self._by_start.items() if start in data]
        for order in sorted(itertools.chain.from_iterable(found)):
            token = self._tokens[order]
            if (control or token.plain) and token.text in data:
                parts = _cut(parts, token)
        if guard is None:
            return parts
        hidden = guard.encode()
        kept = (part if isinstance(part, int) else part.replace(hidden, b"") for part in parts)
        return [part for part in kept if part != b""]


def _cut(parts: list[bytes | int], token: SpecialToken) -> list[bytes | int]:
    out: list[bytes | int] = []
    for part in parts:
        if isinstance(part, int):
            out.append(part)
            continue
        pieces = part.split(token.text)
        for position, piece in enumerate(pieces):
            if position:
                out.append(token.index)
                piece = piece.lstrip(_WHITE) if token.strips_right else piece
            if token.strips_left and position < len(pieces) - 1:
                piece = piece.rstrip(_WHITE)
            if piece:
                out.append(piece)
    return out
