"""GGUF files that a hostile or broken writer could make, as data: one line a case.

`python -m tests.hostile_gguf` prints the table of what is accepted, for the documentation.
"""
# ruff: noqa: E501 -- one line a case

from __future__ import annotations

import dataclasses
import functools
import itertools
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import raw_gguf as raw
from tests import tiny
from tests.raw_gguf import Tensor

NAME = raw.text_key("general.name", "x")
ARCH = raw.text_key("general.architecture", "llama")
DATA = bytes(8 * 4 * 4)
BIG = 2**63
MOST = 900_000
"""Strings that all arrays of a file may have."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One file and what must come of it."""

    name: str
    """What is wrong, or unusual."""
    make: Callable[[], bytes]
    """The file's bytes."""
    words: tuple[str, ...]
    """Parts of the refusal; of an accepted file, parts of one line of `inspect`'s problems, if there are any."""
    part: str
    """What is broken: `header` (every command refuses it), `vocabulary` (`tokenize` refuses it, `inspect` shows
    the problem), `weights` (`score` refuses it, `inspect` shows the problem)."""
    note: str = ""
    """Only of an accepted file: how it is read."""


def refused(name: str, fields: dict[str, Any], *words: str) -> Case:
    """A header that every command refuses: `raw_gguf.build` of these fields, with DATA as its data."""
    return Case(name, lambda: raw.build(**{"data": DATA, **fields}), words, "header")


def accepted(name: str, fields: dict[str, Any], note: str, *words: str) -> Case:
    """A header that is taken: it gets an architecture, so that `inspect` has one to show."""
    keys = [ARCH, *fields.get("keys", ())]
    return Case(name, lambda: raw.build(**{"data": DATA, **fields, "keys": keys}), words, "header", note)


value = functools.partial(raw.key, "k")
array = functools.partial(raw.array_key, "k")
aligned = functools.partial(raw.u32_key, "general.alignment")
u64 = struct.Struct("<Q").pack
WIDE = "a" * (2**24 - 4) + "\N{GRINNING FACE}"
"""The longest string that is allowed; in memory it takes four bytes a character."""
STRINGS: dict[str, str | bytes] = {
    "empty": "",
    "wide": "a" * 20 + "\N{GRINNING FACE}",
    "with NUL": "a\0b",
    "not UTF-8": b"\xff" + b"a" * 10,
    "with NUL and not UTF-8": b"\xff\0",
}
"""Strings that cost most, in time or in memory, a million of them."""

# fmt: off
HEADERS = [
    # Magic, version, counts.
    refused("zip file", dict(magic=b"PK\x03\x04"), "magic", r"PK\x03\x04"),
    refused("magic of older files", dict(magic=b"GGML"), "magic", "GGML"),
    refused("magic of zeros", dict(magic=bytes(4)), "magic", r"\x00"),
    refused("version 0", dict(version=0), "version", "is 0"),
    refused("version 1", dict(version=1), "version", "is 1"),
    refused("version 4", dict(version=4), "version", "is 4"),
    refused("version 99", dict(version=99), "version", "is 99"),
    refused("version -1", dict(version=2**32 - 1), "version", str(2**32 - 1)),
    refused("big endian 3", dict(version=3 << 24), "version", "big-endian"),
    refused("big endian 2", dict(version=2 << 24), "version", "big-endian"),
    refused("tensor count 2^62", dict(keys=[NAME], tensor_count=2**62), "tensor count", str(2**62)),
    refused("tensor count 2^64-1", dict(tensor_count=2**64 - 1), "tensor count", str(2**64 - 1)),
    refused("tensor count one more", dict(tensors=[Tensor()], tensor_count=2, alignment=0, data=b""), "tensor count", "is 2", "truncated"),
    refused("tensor count 2^15+1", dict(tensor_count=2**15 + 1, data=bytes(2**22)), "tensor count", "32768"),
    refused("2^15 unnamed tensors", dict(tensor_count=2**15, data=bytes(2**22)), "tensor 0 name", "empty"),
    refused("key count 2^62", dict(keys=[NAME], key_count=2**62), "key count", str(2**62)),
    refused("key count 2^64-1", dict(keys=[NAME], key_count=2**64 - 1), "key count", str(2**64 - 1)),
    refused("key count 2^13+1", dict(key_count=2**13 + 1, data=bytes(2**20)), "key count", "8192"),
    refused("as many keys and tensors as allowed, one byte short", dict(keys=[raw.u32_key(f"k{i}", i) for i in range(2**13)], tensors=[Tensor(f"t{i}", (8,), 0, 32 * i) for i in range(2**15)], data=bytes(2**20 - 1)), "'t32767'", "31 of them"),
    refused("key count one less", dict(keys=[ARCH, NAME], key_count=1, tensors=[Tensor()]), "tensor 'general.name'", "8 dimensions"),
    refused("key count one more", dict(keys=[ARCH], key_count=2, tensors=[Tensor()]), "tensor 0 name", "at most 63"),
    # Keys.
    refused("key empty", dict(keys=[raw.text_key("", "x")]), "key 0", "empty"),
    refused("key NUL", dict(keys=[raw.text_key("a\0b", "x")]), "key 0", "NUL"),
    refused("key not UTF-8", dict(keys=[NAME, raw.text_key(b"a\xff", "x")]), "key 1", "UTF-8", r"a\xff"),
    refused("key a surrogate", dict(keys=[raw.text_key(b"\xed\xa0\x80", "x")]), "key 0", "UTF-8"),
    refused("key twice", dict(keys=[NAME, NAME]), "'general.name'", "twice"),
    refused("key twice, of two types", dict(keys=[NAME, raw.u32_key("general.name", 1)]), "'general.name'", "twice"),
    refused("key with newline twice", dict(keys=[raw.text_key("a\nb", "x")] * 2), r"a\nb", "twice"),
    refused("key too long", dict(keys=[raw.text_key("k" * 65536, "x")]), "key 0", "65536", "65535"),
    refused("key length 2^63", dict(keys=[raw.string("k", length=BIG)]), "key 0", str(BIG)),
    refused("key length 2^64-1", dict(keys=[raw.string("k", length=2**64 - 1)]), "key 0", str(2**64 - 1)),
    refused("key length 60000", dict(keys=[raw.string("k", length=60000)]), "key 0", "60000", "truncated"),
    # Values.
    refused("value type 13", dict(keys=[value(13, bytes(8))]), "'k'", "13"),
    refused("value type 2^32-1", dict(keys=[value(2**32 - 1, bytes(8))]), "'k'", str(2**32 - 1)),
    refused("bool 2", dict(keys=[value(raw.BOOL, b"\2")]), "'k'", "bool", "2"),
    refused("bool 255 in an array", dict(keys=[array(raw.BOOL, 2, b"\1\xff")]), "'k'", "bool", "255"),
    refused("value cut", dict(keys=[value(raw.U64, bytes(3))], alignment=0, data=b""), "'k'", "8 bytes", "3 left"),
    refused("string length 2^63", dict(keys=[value(raw.STRING, raw.string("x", length=BIG))]), "'k'", str(BIG)),
    refused("string length 2^64-8", dict(keys=[value(raw.STRING, raw.string("x", length=2**64 - 8))]), "'k'", str(2**64 - 8)),
    refused("string length 2^24", dict(keys=[value(raw.STRING, raw.string("x", length=2**24))]), "'k'", str(2**24), "truncated"),
    refused("string length 2^24+1", dict(keys=[value(raw.STRING, raw.string("x", length=2**24 + 1))]), "'k'", str(2**24 + 1), str(2**24)),
    refused("array length 2^63", dict(keys=[array(raw.I32, BIG)]), "'k'", str(BIG)),
    refused("array length 2^61, bytes wrap to 0", dict(keys=[array(raw.U64, 2**61)]), "'k'", str(2**61)),
    refused("array length 2^64-1 of bytes", dict(keys=[array(raw.U8, 2**64 - 1)]), "'k'", str(2**64 - 1)),
    refused("array length 2^20", dict(keys=[array(raw.U64, 2**20)]), "'k'", str(2**23), "truncated"),
    refused("strings 2^63", dict(keys=[array(raw.STRING, BIG)]), "'k'", str(BIG)),
    refused("strings 2^61, lengths wrap to 0", dict(keys=[array(raw.STRING, 2**61)]), "'k'", str(2**61)),
    refused("strings 2^21", dict(keys=[array(raw.STRING, 2**21)]), "'k'", str(2**21), "truncated"),
    refused("strings above the limit", dict(keys=[array(raw.STRING, 2**21 + 1, bytes(2**20))]), "'k'", str(2**21 + 1), str(2**21)),
    refused("strings above the limit by one, all there", dict(keys=[array(raw.STRING, MOST + 1, bytes(8 * MOST + 8))]), "'k'", str(MOST + 1), str(MOST)),
    refused("strings above the limit together", dict(keys=[raw.array_key(k, raw.STRING, MOST // 2 + 1, bytes(4 * MOST + 8)) for k in "ij"]), "'j'", str(MOST // 2 + 1), str(MOST)),
    *(refused(f"as many strings as allowed, {what}, then a bad tensor", dict(keys=[array(raw.STRING, MOST, raw.string(text) * MOST)], tensors=[Tensor("")]), "tensor 0 name") for what, text in STRINGS.items()),
    refused("longest string, then a bad tensor", dict(keys=[raw.text_key("k", WIDE)], tensors=[Tensor("")]), "tensor 0 name"),
    refused("header above 28 MiB", dict(keys=[raw.array_key(f"k{i}", raw.U64, 2**21, bytes(2**24)) for i in range(2)]), "'k1'", str(28 * 2**20)),
    refused("header above 28 MiB of wide strings", dict(keys=[raw.text_key(f"k{i}", WIDE) for i in range(2)]), "'k1'", str(28 * 2**20)),
    refused("strings above 28 MiB", dict(keys=[array(raw.STRING, MOST, raw.string("x" * 32) * MOST)]), "'k'", str(28 * 2**20)),
    refused("string in array cut", dict(keys=[array(raw.STRING, 2, raw.string("c") + raw.string("d", length=999))]), "'k'", "string 1 of 2", "truncated"),
    refused("string in array 2^63", dict(keys=[array(raw.STRING, 1, raw.string("d", length=BIG))]), "'k'", "string 0 of 1"),
    refused("string in array 2^64-8", dict(keys=[array(raw.STRING, 2, raw.string("d", length=2**64 - 8) * 2)]), "'k'", "string 0 of 2"),
    refused("string in array without length", dict(keys=[array(raw.STRING, 2, raw.string(bytes(8)) + b"\1")], alignment=0, data=b""), "'k'", "string 1 of 2"),
    refused("array of arrays", dict(keys=[array(raw.ARRAY, 1, bytes(12))]), "'k'", "array of arrays"),
    refused("arrays nested 1000 deep", dict(keys=[array(raw.ARRAY, 1, struct.pack("<IQ", raw.ARRAY, 1) * 1000)]), "'k'", "array of arrays"),
    refused("array of type 99", dict(keys=[array(99, 1)]), "'k'", "99"),
    refused("array without length", dict(keys=[value(raw.ARRAY, b"\5\0\0\0")], alignment=0, data=b""), "'k'", "array length"),
    refused("split over 3 files", dict(keys=[raw.key("split.count", 2, b"\3\0")]), "split.count", "3"),
    refused("split over -1 files", dict(keys=[raw.key("split.count", raw.I32, b"\xff" * 4)]), "split.count", "-1"),
    refused("split text", dict(keys=[raw.text_key("split.count", "2")]), "split.count", "'2'"),
    # The alignment.
    refused("alignment 0", dict(keys=[aligned(0)]), "general.alignment", "is 0"),
    refused("alignment 1", dict(keys=[aligned(1)]), "general.alignment", "is 1"),
    refused("alignment 3", dict(keys=[aligned(3)]), "general.alignment", "is 3"),
    refused("alignment 4", dict(keys=[aligned(4)]), "general.alignment", "is 4"),
    refused("alignment 48", dict(keys=[aligned(48)]), "general.alignment", "is 48"),
    refused("alignment 2^31", dict(keys=[aligned(2**31)]), "general.alignment", str(2**31)),
    refused("alignment uint64", dict(keys=[raw.key("general.alignment", raw.U64, u64(32))]), "general.alignment", "uint64"),
    refused("alignment int32", dict(keys=[raw.key("general.alignment", raw.I32, struct.pack("<i", -32))]), "general.alignment", "int32"),
    refused("alignment text", dict(keys=[raw.text_key("general.alignment", "32")]), "general.alignment", "string"),
    refused("alignment array", dict(keys=[raw.array_key("general.alignment", raw.U32, 1, b"\x20\0\0\0")]), "general.alignment", "array of uint32"),
    refused("alignment twice", dict(keys=[aligned(32), aligned(64)]), "'general.alignment'", "twice"),
    # Dimensions.
    refused("dims 2^32 2^32", dict(tensors=[Tensor(dims=(2**32, 2**32))]), "'a'", str(2**66), "truncated"),
    refused("dims 2^64-1 2", dict(tensors=[Tensor(dims=(2**64 - 1, 2))]), "'a'", str((2**64 - 1) * 8)),
    refused("dims 2^62 four times", dict(tensors=[Tensor(dims=(2**62,) * 4)]), "'a'", str(2**250)[:20]),
    refused("dims 2^62, bytes wrap to 0", dict(tensors=[Tensor(dims=(2**62,))]), "'a'", str(2**64), "truncated"),
    refused("dims 4 0", dict(tensors=[Tensor(dims=(4, 0))]), "'a'", "[4, 0]"),
    refused("dims 0 4", dict(tensors=[Tensor(dims=(0, 4))]), "'a'", "[0, 4]"),
    refused("no dims", dict(tensors=[Tensor(dims=())]), "'a'", "0 dimensions"),
    refused("5 dims", dict(tensors=[Tensor(dims=(1, 1, 1, 1, 8))]), "'a'", "5 dimensions"),
    refused("1e6 dims", dict(tensors=[Tensor(dim_count=10**6)]), "'a'", "1000000 dimensions"),
    refused("2^32-1 dims", dict(tensors=[Tensor(dim_count=2**32 - 1)]), "'a'", f"{2**32 - 1} dimensions"),
    refused("half a block", dict(tensors=[Tensor(dims=(48, 2), kind=2)]), "'a'", "48", "Q4_0", "32"),
    refused("half a K block", dict(tensors=[Tensor(dims=(64, 4), kind=12)]), "'a'", "64", "Q4_K", "256"),
    refused("rows of 1 in a block type", dict(tensors=[Tensor(dims=(1, 32), kind=8)]), "'a'", "rows of 1 ", "Q8_0"),
    # Types, offsets, names.
    refused("unknown type", dict(tensors=[Tensor(kind=99)]), "'a'", "99", "unknown"),
    refused("type 2^32-1", dict(tensors=[Tensor(kind=2**32 - 1)]), "'a'", str(2**32 - 1)),
    *(refused(f"removed type {kind}", dict(tensors=[Tensor(kind=kind)]), "'a'", f"type {kind} ", "removed") for kind in (4, 5, 31, 32, 33, 36, 37, 38)),
    refused("offset 1", dict(tensors=[Tensor(offset=1)]), "'a'", "offset 1", "32"),
    refused("offset of another alignment", dict(keys=[aligned(64)], alignment=64, tensors=[Tensor(offset=32)], data=DATA * 2), "'a'", "offset 32", "64"),
    refused("offset 2^40", dict(tensors=[Tensor(offset=2**40)]), "'a'", "128 bytes", "0 of them"),
    refused("offset 2^63", dict(tensors=[Tensor(offset=2**63)]), "'a'", "128 bytes", "truncated"),
    refused("offset 2^64-32", dict(tensors=[Tensor(offset=2**64 - 32)]), "'a'", "128 bytes", "truncated"),
    refused("overlap", dict(tensors=[Tensor("a"), Tensor("b", offset=96)], data=DATA * 2), "'b'", "'a'", "inside"),
    refused("overlap, later first", dict(tensors=[Tensor("b", offset=96), Tensor("a")], data=DATA * 2), "'b'", "'a'", "inside"),
    refused("overlap, one inside another", dict(tensors=[Tensor("a", (64,)), Tensor("b", (8,), 0, 64)], data=DATA * 2), "'b'", "'a'", "inside"),
    refused("same place", dict(tensors=[Tensor("a"), Tensor("b")], data=DATA * 2), "'b'", "'a'", "inside"),
    refused("tensor twice", dict(tensors=[Tensor("a"), Tensor("a", offset=128)], data=DATA * 2), "'a'", "twice"),
    refused("tensor unnamed", dict(tensors=[Tensor("")]), "tensor 0 name", "empty"),
    refused("tensor NUL", dict(tensors=[Tensor("a\0b")]), "tensor 0 name", "NUL"),
    refused("tensor not UTF-8", dict(tensors=[Tensor(b"\xff\n")]), "tensor 0 name", r"\xff\n", "UTF-8"),
    refused("tensor name of 64", dict(tensors=[Tensor("n" * 64)]), "tensor 0 name", "64", "63"),
    refused("one byte short", dict(tensors=[Tensor("a"), Tensor("b", offset=128)], data=(DATA * 2)[:-1]), "'b'", "128 bytes", "127 of them"),
    refused("no data", dict(tensors=[Tensor()], alignment=0, data=b""), "'a'", "128 bytes", "0 of them"),
    # What names the model: no command can do without.
    refused("no architecture", dict(), "general.architecture", "missing"),
    refused("architecture a number", dict(keys=[raw.u32_key("general.architecture", 1)]), "general.architecture", "uint32"),
    refused("architecture not UTF-8", dict(keys=[raw.text_key("general.architecture", b"\xff")]), "general.architecture", "UTF-8"),
    refused("name an array", dict(keys=[ARCH, raw.array_key("general.name", raw.U8, 1, b"x")]), "general.name", "array of uint8"),
    # Accepted.
    accepted("version 2", dict(version=2), "version 2, little endian"),
    accepted("bytes after the last tensor", dict(tensors=[Tensor()], data=DATA + b"more"), "writers pad; they are not looked at"),
    accepted("a gap between tensors", dict(tensors=[Tensor("a", (8,)), Tensor("b", (8,), 0, 96)]), "not looked at"),
    accepted("tensors in another order than their data", dict(tensors=[Tensor("a", (8,), 0, 64), Tensor("b", (8,))]), "names decide"),
    accepted("no tensors, and no padding", dict(alignment=0, data=b""), "a vocabulary of its own", "vocabulary and no weights"),
    *(accepted(f"alignment {size}", dict(keys=[aligned(size)], alignment=size, tensors=[Tensor()]), "a power of two from 8 to 65536") for size in (8, 65536)),
    accepted("name of 63 bytes", dict(tensors=[Tensor("n" * 63)]), "the longest one"),
    accepted("4 dimensions", dict(tensors=[Tensor(dims=(2, 4, 2, 2))]), "the most"),
    accepted("key with a newline and an escape", dict(keys=[raw.u32_key("a\n\x1b[2Jb", 1)]), "shown escaped"),
    accepted("value not UTF-8", dict(keys=[value(raw.STRING, raw.string(b"\xff\xfe"))]), "kept as bytes"),
    accepted("value with NUL, value empty", dict(keys=[value(raw.STRING, raw.string("a\0b")), raw.text_key("e", "")]), "kept as they are"),
    accepted("array entry not UTF-8", dict(keys=[array(raw.STRING, 2, raw.string(b"\xc3") + raw.string("x"))]), "kept as bytes, the others are text"),
    accepted("arrays of length 0", dict(keys=[array(raw.STRING, 0), raw.array_key("i", raw.I32, 0)]), "empty"),
    accepted("NaN and infinity in a key of no use", dict(keys=[value(raw.F32, struct.pack("<f", float("nan"))), raw.key("i", raw.F32, struct.pack("<f", float("inf")))]), "refused only where a number is needed"),
    accepted("type without a reader", dict(tensors=[Tensor(dims=(256,), kind=15)], data=bytes(292)), "refused when it is a weight (Q8_1, Q8_K, Q1_0, Q2_0, integers, F64)"),
    accepted("split.count 1", dict(keys=[raw.key("split.count", 2, b"\1\0")]), "one file of one"),
]
# fmt: on


def small_parts() -> list[bytes]:
    """A small file, cut where one field ends and the next begins."""
    tokens = [b"ab", b"\xc3\xa9", b""]
    text = [part for token in tokens for part in (u64(len(token)), token)]
    parts = [b"GGUF", struct.pack("<I", 3), u64(2), u64(3)]
    for key, kind in (
        (b"general.architecture", raw.STRING),
        (b"k", raw.ARRAY),
        (b"general.alignment", raw.U32),
    ):
        parts += [u64(len(key)), key, struct.pack("<I", kind)]
        if kind == raw.STRING:
            parts += [u64(5), b"llama"]
        elif kind == raw.ARRAY:
            parts += [struct.pack("<I", raw.STRING), u64(3), *text]
        else:
            parts += [struct.pack("<I", 32)]
    for name, dims, kind, offset in ((b"a", (8, 4), 0, 0), (b"b", (32,), 8, 128)):
        parts += [u64(len(name)), name, struct.pack("<I", len(dims)), *map(u64, dims)]
        parts += [struct.pack("<I", kind), u64(offset)]
    head = sum(map(len, parts))
    return parts + [bytes(-head % 32), bytes(128), bytes(34)]


def _cuts() -> list[Case]:
    parts, cases = small_parts(), []
    whole = b"".join(parts)
    for end in sorted(set(itertools.accumulate(map(len, parts)))):
        if end < len(whole):
            words = ("truncated",) if end > 4 else ("version", "truncated")
            cases.append(
                Case(
                    f"cut after {end} bytes",
                    functools.partial(whole.__getitem__, slice(end)),
                    words,
                    "header",
                )
            )
    for share in (0.25, 0.5, 0.999):
        cases.append(Case(f"cut to {share:.1%}", functools.partial(_share, share), ("truncated",), "header"))
    cases.append(Case("empty file", bytes, ("empty",), "header"))
    return cases


def _share(share: float) -> bytes:
    whole = tiny_file()
    return whole[: int(len(whole) * share)]


def tiny_file(change: Callable[[Any, Any], None] | None = None, **options: Any) -> bytes:
    """A TINY model's file; `change` and options as in `write_tiny`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        tiny.write_tiny(path, mutate=change, **options)
        return path.read_bytes()


def vocabulary_file(**changes: bytes | None) -> bytes:
    """A file of a vocabulary of 288 tokens and no weights; entries by key after `tokenizer.ggml.`, None to leave one out."""
    pieces, types, eos, bos = tiny.vocabulary(288)
    entries: dict[str, bytes | None] = {
        "model": _text("model", "gpt2"),
        "pre": _text("pre", "gpt-2"),
        "tokens": _texts("tokens", pieces),
        "token_type": _numbers("token_type", types),
        "merges": _texts("merges", tiny.MERGES),
        "eos_token_id": _number("eos_token_id", eos),
        "bos_token_id": _number("bos_token_id", bos),
        **changes,
    }
    return raw.build(keys=[ARCH, *(entry for entry in entries.values() if entry is not None)])


def _text(key: str, text: str | bytes) -> bytes:
    return raw.text_key(f"tokenizer.ggml.{key}", text)


def _texts(key: str, texts: Any) -> bytes:
    payload = b"".join(map(raw.string, texts))
    return raw.array_key(f"tokenizer.ggml.{key}", raw.STRING, len(texts), payload)


def _number(key: str, number: int, kind: int = raw.U32) -> bytes:
    letter = {raw.U32: "I", raw.I32: "i", raw.U64: "Q", raw.F32: "f", raw.BOOL: "?"}[kind]
    return raw.key(f"tokenizer.ggml.{key}", kind, struct.pack(f"<{letter}", number))


def _numbers(key: str, numbers: Any, kind: int = raw.I32) -> bytes:
    payload = struct.pack(f"<{len(numbers)}{'f' if kind == raw.F32 else 'i'}", *numbers)
    return raw.array_key(f"tokenizer.ggml.{key}", kind, len(numbers), payload)


def _vocabulary(name: str, changes: dict[str, bytes | None], *words: str, note: str = "") -> Case:
    return Case(name, functools.partial(vocabulary_file, **changes), words, "vocabulary", note)


PIECES, TYPES, EOS, BOS = tiny.vocabulary(288)


def _pieces(**changes: Any) -> dict[str, bytes | None]:
    """The token list with some entries replaced: `_5=b"x"`."""
    pieces: list[Any] = list(PIECES)
    for key, piece in changes.items():
        pieces[int(key[1:])] = piece
    return {"tokens": _texts("tokens", pieces)}


# fmt: off
VOCABULARIES = [
    _vocabulary("no tokenizer", {"model": None}, "tokenizer.ggml.model"),
    _vocabulary("tokenizer unknown", {"model": _text("model", "abacus")}, "tokenizer.ggml.model", "abacus"),
    _vocabulary("tokenizer a number", {"model": _number("model", 1)}, "tokenizer.ggml.model"),
    _vocabulary("pre unknown", {"pre": _text("pre", "abacus")}, "tokenizer.ggml.pre", "abacus"),
    _vocabulary("pre not UTF-8", {"pre": _text("pre", b"\xff")}, "tokenizer.ggml.pre"),
    _vocabulary("no tokens", {"tokens": None}, "tokenizer.ggml.tokens"),
    _vocabulary("0 tokens", {"tokens": _texts("tokens", [])}, "tokenizer.ggml.tokens"),
    _vocabulary("tokens of numbers", {"tokens": _numbers("tokens", [1, 2])}, "tokenizer.ggml.tokens"),
    _vocabulary("tokens one text", {"tokens": _text("tokens", "ab")}, "tokenizer.ggml.tokens"),
    _vocabulary("token twice", _pieces(_5="!"), "tokenizer.ggml.tokens[5]", "repeats"),
    _vocabulary("types one short", {"token_type": _numbers("token_type", TYPES[1:])}, "tokenizer.ggml.token_type", "287", "288"),
    _vocabulary("types one more", {"token_type": _numbers("token_type", [*TYPES, 1])}, "tokenizer.ggml.token_type", "289", "288"),
    _vocabulary("no types, length 0", {"token_type": _numbers("token_type", [])}, "tokenizer.ggml.token_type", "0 entries", "288"),
    _vocabulary("types fractions", {"token_type": _numbers("token_type", TYPES, raw.F32)}, "tokenizer.ggml.token_type"),
    _vocabulary("types texts", {"token_type": _texts("token_type", PIECES)}, "tokenizer.ggml.token_type"),
    _vocabulary("types one number", {"token_type": _number("token_type", 1)}, "tokenizer.ggml.token_type"),
    _vocabulary("scores one short", {"scores": _numbers("scores", [0] * 287, raw.F32)}, "tokenizer.ggml.scores", "287", "288"),
    _vocabulary("scores one number", {"scores": _number("scores", 1)}, "tokenizer.ggml.scores"),
    _vocabulary("no merges", {"merges": None}, "tokenizer.ggml.merges"),
    _vocabulary("merges numbers", {"merges": _numbers("merges", [1])}, "tokenizer.ggml.merges"),
    _vocabulary("merge of an unknown piece", {"merges": _texts("merges", ["h zz"])}, "tokenizer.ggml.merges[0]", "'zz'"),
    _vocabulary("merge with an unknown result", {"merges": _texts("merges", ["h h"])}, "tokenizer.ggml.merges[0]", "'hh'"),
    _vocabulary("merge of one piece", {"merges": _texts("merges", ["he"])}, "tokenizer.ggml.merges[0]"),
    _vocabulary("merge empty", {"merges": _texts("merges", [""])}, "tokenizer.ggml.merges[0]"),
    _vocabulary("merge not UTF-8", {"merges": _texts("merges", [b"h \xff"])}, "tokenizer.ggml.merges[0]"),
    _vocabulary("eos 288", {"eos_token_id": _number("eos_token_id", 288)}, "tokenizer.ggml.eos_token_id", "288"),
    _vocabulary("eos 2^32-1", {"eos_token_id": _number("eos_token_id", 2**32 - 1)}, "tokenizer.ggml.eos_token_id", str(2**32 - 1)),
    _vocabulary("eos 2^64-1", {"eos_token_id": _number("eos_token_id", 2**64 - 1, raw.U64)}, "tokenizer.ggml.eos_token_id", str(2**64 - 1)),
    _vocabulary("eos -1", {"eos_token_id": _number("eos_token_id", -1, raw.I32)}, "tokenizer.ggml.eos_token_id", "-1"),
    _vocabulary("eos a fraction", {"eos_token_id": _number("eos_token_id", 1, raw.F32)}, "tokenizer.ggml.eos_token_id"),
    _vocabulary("eos a bool", {"eos_token_id": _number("eos_token_id", 1, raw.BOOL)}, "tokenizer.ggml.eos_token_id"),
    _vocabulary("bos text", {"bos_token_id": _text("bos_token_id", "1")}, "tokenizer.ggml.bos_token_id"),
    _vocabulary("bos 2^31", {"bos_token_id": _number("bos_token_id", 2**31)}, "tokenizer.ggml.bos_token_id", str(2**31)),
    _vocabulary("padding 999", {"padding_token_id": _number("padding_token_id", 999)}, "tokenizer.ggml.padding_token_id", "999"),
    _vocabulary("add_bos a number", {"add_bos_token": _number("add_bos_token", 1)}, "add_bos_token"),
    _vocabulary("add_bos without a bos", {"add_bos_token": _number("add_bos_token", 1, raw.BOOL), "bos_token_id": None}, "bos_token_id"),
    _vocabulary("a plain vocabulary", {}, note="as it is"),
    _vocabulary("token not UTF-8", _pieces(_280=b"\xff\xfe"), "tokens[280]", "UTF-8", note="its bytes; no text makes it; a warning"),
    _vocabulary("token with NUL", _pieces(_280="a\0b"), note="a token like others"),
    _vocabulary("token empty", _pieces(_280=""), "tokens[280]", "empty", note="read as [EMPTY_280], as in llama.cpp; a warning"),
    _vocabulary("no types", {"token_type": None}, "tokenizer.ggml.token_type", note="every token is normal; a warning"),
    _vocabulary("type 99", {"token_type": _numbers("token_type", [*TYPES[:-1], 99])}, note="no kind of its own, as in llama.cpp"),
    _vocabulary("no eos", {"eos_token_id": None}, "eos_token_id", note="known end-of-text pieces end generation; a warning"),
    _vocabulary("no pre", {"pre": None}, "tokenizer.ggml.pre", note="llama.cpp's default split; a warning"),
    _vocabulary("merge twice", {"merges": _texts("merges", [*tiny.MERGES, tiny.MERGES[0]])}, "merges", "repeats", note="the first one counts; a warning"),
]
# fmt: on


def _weights(
    name: str, change: Callable[[Any, Any], None], *words: str, note: str = "", **options: Any
) -> Case:
    return Case(name, functools.partial(tiny_file, change, context=64, **options), words, "weights", note)


UP = "blk.1.ffn_up.weight"


def _typed(number: int) -> Case:
    """A weight whose type, of four bytes an element as F32, has no reader."""

    def make() -> bytes:
        whole = tiny_file(context=64)
        at = whole.index(UP.encode()) + len(UP) + 4 + 2 * 8
        return whole[:at] + struct.pack("<I", number) + whole[at + 4 :]

    return Case(f"a weight of type {number}", make, (UP, f"number {number}"), "weights")


def _set(**values: Any) -> Callable[[Any, Any], None]:
    """Sets `llama.` keys; `__` stands for a dot."""
    return lambda metadata, _: metadata.update(
        {f"llama.{key.replace('__', '.')}": value for key, value in values.items()}
    )


# fmt: off
WEIGHTS = [
    _weights("a tensor missing", lambda _, tensors: tensors.pop(UP), UP, "missing"),
    _weights("a row missing", lambda _, tensors: tensors.update({UP: tensors[UP][:-1]}), UP, "[95, 64]", "[96, 64]"),
    _weights("a tensor transposed", lambda _, tensors: tensors.update({UP: tensors[UP].T.copy()}), UP, "[64, 96]", "[96, 64]"),
    _weights("a vector for a matrix", lambda _, tensors: tensors.update({UP: tensors[UP].reshape(-1)}), UP, "[6144]", "[96, 64]"),
    _typed(26),  # I32
    _weights("no tensors", lambda _, tensors: tensors.clear(), "tensor count", "no weights"),
    _weights("embedding of 287 rows", lambda _, tensors: tensors.update({"token_embd.weight": tensors["token_embd.weight"][:-1]}), "tokenizer.ggml.tokens", "288", "287"),
    _weights("0 layers", _set(block_count=0), "llama.block_count", "is 0"),
    _weights("2^32-1 layers", _set(block_count=2**32 - 1), "llama.block_count", str(2**32 - 1)),
    _weights("3 layers of 2", _set(block_count=3), "blk.2.attn_norm.weight", "missing"),
    _weights("width 0", _set(embedding_length=0), "llama.embedding_length", "is 0"),
    _weights("width 2^31", _set(embedding_length=2**31), "token_embd.weight", str(2**31)),
    _weights("0 heads", _set(attention__head_count=0), "llama.attention.head_count", "is 0"),
    _weights("3 kv heads of 4", _set(attention__head_count_kv=3), "model", "3"),
    _weights("context 0", _set(context_length=0), "llama.context_length", "is 0"),
    _weights("rope base NaN", _set(rope__freq_base=float("nan")), "llama.rope.freq_base", "nan"),
    _weights("epsilon missing", lambda metadata, _: metadata.pop("llama.attention.layer_norm_rms_epsilon"), "llama.attention.layer_norm_rms_epsilon", "missing"),
    _weights("epsilon text", _set(attention__layer_norm_rms_epsilon="1"), "llama.attention.layer_norm_rms_epsilon", "string"),
    _weights("architecture unknown", lambda metadata, _: metadata.update({"general.architecture": "abacus"}), "general.architecture", "abacus"),
    _weights("an unknown tensor", lambda _, tensors: tensors.update({"blk.0.foo.weight": tensors["output_norm.weight"]}), "blk.0.foo.weight", note="not used; a warning that names it"),
    _weights("an unknown key", _set(foo=1), "llama.foo", note="not used; a warning that names it"),
]
# fmt: on

CASES = [*HEADERS, *_cuts(), *VOCABULARIES, *WEIGHTS]
"""Every case."""


def accepted_table() -> str:
    """Markdown of what is accepted."""
    lines = ["| what | how it is read |", "|---|---|"]
    return "\n".join(lines + [f"| {case.name} | {case.note} |" for case in CASES if case.note])


if __name__ == "__main__":
    print(accepted_table())
