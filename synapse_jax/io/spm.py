"""SentencePiece vocabularies of GGUF files (`tokenizer.ggml.model` = `llama`).

The `sentencepiece` library merges, from a model that is rebuilt from pieces and
scores. Everything that it would do before or after (normalizing, user-defined
pieces, byte fallback) is left off and done here, as llama.cpp does it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sentencepiece

from synapse_jax.errors import InputError
from synapse_jax.io.utf8 import lead_symbols
from synapse_jax.io.vocabulary import CONTROL, NORMAL, UNKNOWN, Vocabulary


class ScoreMerger:
    """Plain text to ids. No text becomes a control or unknown token, whatever the pieces and scores.

    llama.cpp would let it where pieces build up to one; common vocabularies have no such pieces.

    Args:
      vocabulary: Its pieces.
      scores: float32 [V]; the higher is merged first.
      add_space_prefix: Whether a space goes before the text, and before text that follows a special token.
      source: Name of the file, for messages.

    Raises:
      InputError: the library refuses the pieces.
    """

    def __init__(self, vocabulary: Vocabulary, scores: np.ndarray, *, add_space_prefix: bool, source: str):
        self._add_space_prefix = add_space_prefix
        self._unknown = len(vocabulary.pieces)
        self._fallback = [_byte_id(vocabulary, byte) for byte in range(256)]
        self._engine = sentencepiece.SentencePieceProcessor()
        try:
            self._engine.LoadFromSerializedProto(_model(vocabulary, scores))
        except (InputError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{source}: tokenizer.ggml.tokens makes no model: {reason}") from None

    def count_lost_bytes(self, data: bytes) -> int:
        """How many bytes of a text get no token: none where there are byte tokens or an unknown one."""
        return self._encode_parts([data]).count(_LOST) if _LOST in self._fallback and data else 0

    def encode_parts(self, parts: Sequence[bytes | int]) -> list[int]:
        """Ids of stretches of text, and of tokens that are already known, in order."""
        ids = self._encode_parts(parts)
        return [index for index in ids if index != _LOST] if _LOST in self._fallback else ids

    def _encode_parts(self, parts: Sequence[bytes | int]) -> list[int]:
        ids: list[int] = []
        after_special = True
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
                after_special = True
                continue
            prefix = _SPACE if after_special and self._add_space_prefix else b""
            # Spaces first: a broken symbol may take in a part of what stands for one.
            for symbol in lead_symbols(prefix + part.replace(b" ", _SPACE)):
                ids += self._spell(symbol) if isinstance(symbol, bytes) else self._encode(symbol)
            after_special = False
        return ids

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._engine.EncodeAsIds(text)
        if self._unknown not in ids:
            return ids
        out: list[int] = []
        # The piece of an unknown stretch is the stretch itself.
        for index, piece in zip(ids, self._engine.EncodeAsPieces(text), strict=True):
            out += [index] if index != self._unknown else self._spell(piece.encode())
        return out

    def _spell(self, data: bytes) -> list[int]:
        return [self._fallback[byte] for byte in data]


_LOST = -1
_SPACE = "▁".encode()


def _byte_id(vocabulary: Vocabulary, byte: int) -> int:
    """The token of a byte that no piece covers; else the unknown one (llama.cpp fails there), else _LOST."""
    for piece in (f"<0x{byte:02X}>", chr(byte) if byte < 128 else bytes([byte])):
        if piece in vocabulary.ids:
            return vocabulary.ids[piece]
    return _LOST if vocabulary.unknown_id is None else vocabulary.unknown_id


def _model(vocabulary: Vocabulary, scores: np.ndarray) -> bytes:
    """A serialized `sentencepiece.ModelProto`; its sentencepiece_model.proto numbers the fields.

    Every piece that text may become is a normal one, so that user-defined and
    unused pieces are merged by score; ids stay, and the unknown piece is one more at the end.
    """
    names = [*vocabulary.pieces, _unused_name(vocabulary, len(vocabulary.pieces))]
    kinds = np.where(np.isin(vocabulary.types, (CONTROL, UNKNOWN)), CONTROL, NORMAL)
    for index, piece in enumerate(vocabulary.pieces):
        if type(piece) is not str or "\0" in piece:
            # Bytes that are no text, or a NUL: the library takes neither. The id stays, under another name.
            names[index], kinds[index] = _unused_name(vocabulary, index), CONTROL
    pieces = _pieces(names, np.append(scores, np.float32(0)), np.append(kinds, UNKNOWN))  # type: ignore[arg-type]
    # trainer_spec: model_type BPE.
    # normalizer_spec: identity; no dummy prefix, no white space removed or escaped.
    return pieces + b"\x12\x02\x18\x02" + b"\x1a\x10\x0a\x08identity\x18\x00\x20\x00\x28\x00"


def _pieces(names: list[str], scores: np.ndarray, kinds: np.ndarray) -> bytes:
    """The messages `SentencePiece`, made at once: a vocabulary may have a quarter of a million.

    One is 6 bytes (field 1 and its size, text's field 1 and its size), the text, and 7
    bytes (score, kind). Sizes are written in two base-128 digits, the short ones with a zero.
    """
    text = np.frombuffer("\0".join(names).encode(), np.uint8)
    stops = np.append(np.flatnonzero(text == 0), len(text))
    sizes = np.diff(stops, prepend=-1) - 1
    if sizes.max() + 10 >= 1 << 14:
        raise InputError(f"a piece of {sizes.max()} bytes is too long")
    ends = np.cumsum(sizes + 13)
    starts = ends - sizes - 13
    out = np.zeros(ends[-1], np.uint8)
    is_text = np.ones(len(out), bool)
    for at, value in enumerate((0x0A, *_two_digits(sizes + 10), 0x0A, *_two_digits(sizes))):
        out[starts + at] = value
        is_text[starts + at] = False
    score = np.ascontiguousarray(scores, "<f4").view(np.uint8).reshape(-1, 4)
    for at, value in enumerate((0x15, *score.T, 0x18, kinds)):
        out[ends - 7 + at] = value
        is_text[ends - 7 + at] = False
    out[is_text] = np.delete(text, stops[:-1])
    return out.tobytes()


def _two_digits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return values & 127 | 128, values >> 7


def _unused_name(vocabulary: Vocabulary, index: int) -> str:
    name = f"<piece {index}>"
    while name in vocabulary.ids:
        name += ">"
    return name
