"""Split GGUF files on the command line (case 45): whichever part is named, and sets that do not fit."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import CONTEXT, as_argument, some_ids
from tests.split_gguf import part, write_parts
from tests.tiny import Tiny

TINY = Tiny(context=CONTEXT)
GENERATE = ["--tokens", as_argument(some_ids(9)), "--max-new-tokens", 6]
# The stored types of the keys, by GGUF's number and by struct's letter.
KINDS = {"split.count": (2, "H"), "split.no": (2, "H"), "split.tensors.count": (5, "i")}


@pytest.fixture
def parts(tmp_path) -> Path:
    """A folder with a model in three parts and nothing else."""
    write_parts(tmp_path, TINY)
    assert len(list(tmp_path.iterdir())) == 3
    return tmp_path


def test_any_part_opens_the_model(synapse, tiny, parts):
    whole = synapse("generate", "--model", tiny, *GENERATE, "--json").record
    texts = ["--text-file", Path(__file__), "--context", 32, "--chunks", 2]
    scored = synapse("score", "--model", tiny, *texts, "--json").record["result"]
    digests = set()
    for number in (1, 2, 3):
        record = synapse("generate", "--model", part(parts, number), *GENERATE, "--json").record
        assert record["result"] == whole["result"]
        assert record["fingerprints"]["profile"] == whole["fingerprints"]["profile"]
        assert record["model"]["path"] == str(part(parts, number))
        digests.add(record["model"]["sha256"])
        assert synapse("score", "--model", part(parts, number), *texts, "--json").record["result"] == scored
    assert len(digests) == 1 and whole["model"]["sha256"] not in digests


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes of a file that are there once."""
    data = path.read_bytes()
    assert data.count(old) == 1 and len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def lie(number: int, key: str, old: int, new: int) -> Callable[[Path], None]:
    """Changes a number that a part has under a key."""

    kind, letter = KINDS[key]

    def change(folder: Path) -> None:
        before, after = (key.encode() + struct.pack("<I" + letter, kind, value) for value in (old, new))
        rewrite(part(folder, number), before, after)

    return change


def swap(folder: Path) -> None:
    """The second and the third part under each other's name."""
    part(folder, 2).rename(folder / "x")
    part(folder, 3).rename(part(folder, 2))
    (folder / "x").rename(part(folder, 3))


def repeat(folder: Path) -> None:
    """The third part calls one of its tensors as one of the second part is called."""
    rewrite(part(folder, 3), b"blk.1.ffn_up.weight", b"blk.0.ffn_up.weight")


TOTAL = 20
# What is changed, the part at fault and words of the refusal.
BAD: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "no first part": (lambda folder: part(folder, 1).unlink(), 1, "no such file: a part of"),
    "no second part": (lambda folder: part(folder, 2).unlink(), 2, "no such file: a part of"),
    "no third part": (lambda folder: part(folder, 3).unlink(), 3, "no such file: a part of"),
    "two names swapped": (swap, 2, "split.no: is 2, its name and the other parts say 1"),
    "a tensor in two parts": (repeat, 3, "tensor 'blk.0.ffn_up.weight': is also in"),
    "more tensors counted": (
        lie(1, "split.tensors.count", TOTAL, 21), 1, "split.tensors.count: is 21, the 3 parts have 20",
    ),
    "fewer tensors counted": (
        lie(2, "split.tensors.count", TOTAL, 7), 2, "split.tensors.count: is 7, the 3 parts have 20",
    ),
    "tensors counted below 0": (lie(3, "split.tensors.count", TOTAL, -1), 3, "split.tensors.count: is -1"),
    "another count of parts": (lie(3, "split.count", 3, 2), 3, "split.count: is 2"),
    "another number": (lie(2, "split.no", 1, 0), 2, "split.no: is 0"),
    "a part cut": (
        lambda folder: part(folder, 2).write_bytes(part(folder, 2).read_bytes()[:-99]), 2, "truncated",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_parts_that_do_not_fit_are_refused_whichever_is_named(synapse, parts, what):
    change, at_fault, words = BAD[what]
    change(parts)
    for number in (1, 2, 3):
        if part(parts, number).exists():
            message = synapse("generate", "--model", part(parts, number), *GENERATE).refusal
            assert f"{part(parts, at_fault)}: " in message and words in message, message


def test_one_part_is_never_taken_for_the_model(synapse, parts):
    """A part under a name that says nothing of the others, and a part without its keys."""
    part(parts, 1).rename(parts / "best-of-breed.gguf")
    message = synapse("generate", "--model", parts / "best-of-breed.gguf", *GENERATE).refusal
    assert "best-of-breed.gguf: split.count: is 3, but the file is not called" in message
    rewrite(parts / "best-of-breed.gguf", b"split.count", b"split.maker")
    message = synapse("generate", "--model", parts / "best-of-breed.gguf", *GENERATE).refusal
    assert "best-of-breed.gguf: tensor " in message and "is missing" in message


@pytest.mark.parametrize(
    "name", ["best-of-breed.gguf", "tiny-00001-of-00001.gguf", "tiny-00002-of-00003.gguf", "tiny-1-of-3.gguf"]
)
def test_a_whole_file_may_have_any_name(synapse, tiny, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(tiny.read_bytes())
    record = synapse("generate", "--model", path, *GENERATE, "--json").record
    assert record["result"] == synapse("generate", "--model", tiny, *GENERATE, "--json").record["result"]
    assert record["model"]["sha256"] == hashlib.sha256(tiny.read_bytes()).hexdigest()
