"""What the pieces of a byte-level vocabulary stand for."""

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


def piece_bytes(piece: str | bytes, kind: int) -> bytes:
    """What one token stands for: its text, or the bytes that a byte-level piece spells."""
    if isinstance(piece, bytes):
        return piece
    if kind in (CONTROL, UNKNOWN, USER_DEFINED):
        return piece.encode()
    if kind == BYTE and len(piece) == 6 and piece.startswith("<0x"):
        return bytes([int(piece[3:5], 16)])
    if all(character in BYTE_OF for character in piece):
        return bytes(BYTE_OF[character] for character in piece)
    return b"".join(bytes([BYTE_OF[c]]) if c in BYTE_OF else c.encode() for c in piece)
