"""UTF-8 that may be broken, read as llama.cpp reads it."""

from __future__ import annotations

import codecs
import re


def text_bytes(text: str | bytes) -> bytes:
    """UTF-8 of a text. A lone surrogate becomes the three bytes that a lax encoder gives it."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def first_bad_byte(data: bytes) -> int | None:
    """Offset of the first byte that is not part of valid UTF-8, None where all are."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def lax_text(data: bytes) -> str:
    """Bytes as llama.cpp's byte-pair tokenizers read them.

    Sequences that are too long for their character and surrogates are taken as
    they are; any other byte that does not fit is a U+FFFD of its own. (llama.cpp
    fails on code points above U+10FFFF; here their bytes are U+FFFD too.)
    """
    text = data.decode("utf-8", "surrogateescape")
    return text if text.isascii() else _LAX.sub(_read_lax, text)


def lead_symbols(data: bytes) -> list[str | bytes]:
    """Bytes as llama.cpp's SentencePiece tokenizer cuts them: stretches of text, and of bytes that are none.

    A symbol is as long as its first byte says, whatever follows, so a broken one
    takes in the bytes after it: `\\xC3(` is one symbol of two bytes.
    """
    text = data.decode("utf-8", "synapse-lead")
    if text.isascii():
        return [text] if text else []
    parts = _BROKEN.split(text)
    broken = (bytes(ord(mark) & 0xFF for mark in part) for part in parts[1::2])
    both = [part for pair in zip(parts[::2], [*broken, b""], strict=True) for part in pair]
    return [part for part in both if part]


_BROKEN = re.compile("([\udc00-\udcff]+)")


# In bytes that are not UTF-8, as `surrogateescape` shows them: what a lax reader takes for a
# character, or else one byte.
_LAX = re.compile(
    "[\udcc0-\udcdf][\udc80-\udcbf]|[\udce0-\udcef][\udc80-\udcbf]{2}|[\udcf0-\udcf7][\udc80-\udcbf]{3}"
    "|[\udc80-\udcff]"
)


def _read_lax(match: re.Match[str]) -> str:
    lead, *tail = (ord(mark) & 0xFF for mark in match[0])
    if not tail:
        return "\ufffd"
    code = lead & (0x3F >> len(tail))
    for byte in tail:
        code = code << 6 | byte & 0x3F
    return chr(code) if code <= 0x10FFFF else "\ufffd" * len(match[0])


def _read_lead(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    start = error.start
    symbol = error.object[start : start + (1, 1, 1, 1, 2, 2, 3, 4)[(error.object[start] >> 4) - 8]]
    # Valid UTF-8 has no surrogates: they can carry the bytes, ASCII ones too.
    return "".join(chr(0xDC00 + byte) for byte in symbol), start + len(symbol)


codecs.register_error("synapse-lead", _read_lead)
