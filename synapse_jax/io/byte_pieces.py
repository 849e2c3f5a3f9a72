"""What the pieces of a vocabulary stand for."""

from __future__ import annotations

from synapse_jax.io.vocabulary import BYTE, CONTROL, UNKNOWN, USER_DEFINED


def _byte_alphabet() -> dict[str, int]:
    """The 256 characters that stand for bytes in byte-level pieces (GPT-2's bytes_to_unicode)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    alphabet = {chr(byte): byte for byte in shown}
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(hidden)})
    return alphabet


BYTE_OF = _byte_alphabet()
"""Byte that each character of a byte-level piece stands for."""
ALPHABET = {byte: ord(character) for character, byte in BYTE_OF.items()}
"""For `str.translate`: characters U+0000 to U+00FF, which stand for bytes, to the alphabet."""


def piece_bytes(piece: str | bytes, kind: int, *, byte_level: bool) -> bytes:
    """What one token stands for.

    Args:
      piece: As the file stores it; a piece that is bytes stands for them.
      kind: Of the token. Control, unknown and user-defined pieces are their own
        text; a byte token is one byte. The rest is spelled as `byte_level` says;
        that includes unused pieces, which llama.cpp shows as nothing.
      byte_level: Whether characters stand for bytes; else `▁` is a space.
    """
    if isinstance(piece, bytes):
        return piece
    if kind in (CONTROL, UNKNOWN, USER_DEFINED):
        return piece.encode()
    if kind == BYTE and (byte := byte_value(piece)) is not None:
        return bytes([byte])
    if not byte_level:
        return piece.replace("▁", " ").encode()
    if all(character in BYTE_OF for character in piece):
        return bytes(BYTE_OF[character] for character in piece)
    return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in piece)


def byte_value(piece: str) -> int | None:
    """The byte of a piece `<0xHH>`, None for any other."""
    if len(piece) != 6 or not piece.startswith("<0x") or not piece.endswith(">"):
        return None
    try:
        return int(piece[3:5], 16)
    except ValueError:
        return None
