"""Writes the packed table of synapse_jax/io/unicode_classes.py.

    python3.11 tools/update_unicode_classes.py

llama.cpp cuts text by the character classes of Unicode 15.1. Python 3.11 knows
14.0; what 15.0 and 15.1 added is listed here (they changed no class of an older
character), so the tool runs with 3.11 only. It prints the table's digest,
which the tests hold.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import unicodedata
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from synapse_jax.io import unicode_classes as target

ADDED = {
    "L": (
        "1123F-11240 11F02 11F04-11F10 11F12-11F33 1342F 13441-13446 1B132 1B155 1DF25-1DF2A 1E030-1E06D "
        "1E4D0-1E4EB 2B739 2EBF0-2EE5D 31350-323AF"
    ),
    "M": (
        "CF3 ECE 10EFD-10EFF 11241 11F00-11F01 11F03 11F34-11F3A 11F3E-11F42 13440 13447-13455 1E08F "
        "1E4EC-1E4EF"
    ),
    "N": "11F50-11F59 1D2C0-1D2D3 1E4F0-1E4F9",
    "P": "11B00-11B09 11F43-11F4F",
    "S": (
        "2FFC-2FFF 31EF 1F6DC 1F774-1F776 1F77B-1F77F 1F7D9 1FA75-1FA77 1FA87-1FA88 1FAAD-1FAAF 1FABB-1FABD "
        "1FABF 1FACE-1FACF 1FADA-1FADB 1FAE8 1FAF7-1FAF8"
    ),
}
SPACES = "85 A0 1680 2000-200A 2028-2029 202F 205F 3000"
CODES = {
    "N": target.NUMBER,
    "L": target.LETTER,
    "P": target.PUNCTUATION,
    "M": target.MARK,
    "S": target.SYMBOL,
}


def points(ranges: str) -> list[int]:
    """Code points of `A B-C`, hex."""
    out: list[int] = []
    for part in ranges.split():
        first, _, last = part.partition("-")
        out += range(int(first, 16), int(last or first, 16) + 1)
    return out


def build() -> bytes:
    """Class of each code point."""
    if unicodedata.unidata_version != "14.0.0":
        raise SystemExit(f"needs a Python with Unicode 14.0.0, this one has {unicodedata.unidata_version}")
    table = bytearray(
        CODES.get(unicodedata.category(chr(code))[0], target.OTHER) for code in range(sys.maxunicode + 1)
    )
    table[:128] = range(128)
    for kind, ranges in ADDED.items():
        for code in points(ranges):
            table[code] = CODES[kind]
    for code in points(SPACES):
        table[code] = target.SPACE
    return bytes(table)


def pack(table: bytes) -> str:
    """Runs of equal classes from U+0080 on: length as base-128 digits, class; deflated, base 85."""
    out = bytearray()
    for match in re.finditer(rb"(?s)(.)\1*", table[128:]):
        length = match.end() - match.start()
        while length >= 128:
            out.append(length & 127 | 128)
            length >>= 7
        out += bytes([length, match[1][0]])
    return base64.b85encode(zlib.compress(bytes(out), 9)).decode()


def main() -> None:
    table = build()
    path = Path(target.__file__)
    lines = "\n".join(f'    "{part}"' for part in re.findall(".{1,100}", pack(table)))
    text, found = re.subn(
        r"(?s)(_PACKED = \(\n).*?(\n\)  # fmt: skip)",
        lambda m: m[1] + lines + m[2],
        path.read_text("utf-8"),
    )
    assert found == 1
    path.write_text(text, "utf-8")
    print(f"wrote {path.name}, sha256 of the table {hashlib.sha256(table).hexdigest()}")


if __name__ == "__main__":
    main()
