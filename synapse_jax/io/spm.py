"""SentencePiece vocabularies of GGUF files (`tokenizer.ggml.model` = `llama`).

The `sentencepiece` library merges, from a model that is rebuilt from pieces and
scores. Everything that it would do before or after (normalizing, user-defined
pieces, byte fallback) is left off and done here, as llama.cpp does it.
"""

from __future__ import annotations

import struct
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
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{source}: tokenizer.ggml.tokens makes no SentencePiece model: {reason}"
            ) from None

    def count_lost_bytes(self, data: bytes) -> int:
        """How many bytes of a text get no token: none where the vocabulary has byte tokens or an unknown one."""
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
    """The token of a byte that no piece covers; without one, the unknown token (llama.cpp fails there) or _LOST."""
    for piece in (f"<0x{byte:02X}>", chr(byte) if byte < 128 else bytes([byte])):
        if piece in vocabulary.ids:
            return vocabulary.ids[piece]
    return _LOST if vocabulary.unknown_id is None else vocabulary.unknown_id


def _model(vocabulary: Vocabulary, scores: np.ndarray) -> bytes:
    """A serialized `sentencepiece.ModelProto` (the wire format is protobuf's, the fields are its sentencepiece_model.proto).

    Every piece that text may become is a normal one, so that user-defined and
    unused pieces are merged by score; ids stay, and the unknown piece is one more at the end.
    """
    hidden = np.isin(vocabulary.types, (CONTROL, UNKNOWN)).tolist()
    packed = np.ascontiguousarray(scores, "<f4").tobytes()
    kinds = (b"\x18" + bytes([NORMAL]), b"\x18" + bytes([CONTROL]))
    sizes = [_varint(size) for size in range(1 << 10)]
    out = bytearray()
    for index, piece in enumerate(vocabulary.pieces):
        apart = hidden[index]
        if type(piece) is not str or "\0" in piece:
            # The library takes no such piece: its id stays, under another name.
            piece, apart = _unused_name(vocabulary, index), True
        raw = piece.encode()
        size = len(raw)
        name = b"\x0a" + (sizes[size] if size < 1000 else _varint(size)) + raw
        size = len(name) + 7
        out += b"\x0a" + (sizes[size] if size < 1000 else _varint(size))
        out += name + b"\x15" + packed[4 * index : 4 * index + 4] + kinds[apart]
    out += _field(1, _field(1, _unused_name(vocabulary, len(vocabulary.pieces)).encode()) + b"\x15" + struct.pack("<f", 0) + b"\x18" + bytes([UNKNOWN]))
    out += _field(2, b"\x18\x02")  # trainer_spec: model_type BPE
    # normalizer_spec: identity; no dummy prefix, no white space removed or escaped.
    out += _field(3, _field(1, b"identity") + b"\x18\x00\x20\x00\x28\x00")
    return bytes(out)


def _unused_name(vocabulary: Vocabulary, index: int) -> str:
    name = f"<piece {index}>"
    while name in vocabulary.ids:
        name += ">"
    return name


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
