"""GGUF headers: what is accepted, and every malformed file refused in one line (cases 18, 19, 20, 52)."""

import functools
import os
import struct
import time

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io import gguf_types
from synapse_jax.io.gguf import open_gguf
from tests import raw_gguf as raw
from tests import tiny
from tests.raw_gguf import Tensor

NAME = raw.text_key("general.name", "x")
DATA = bytes(8 * 4 * 4)


def refusal(path, content):
    """The message with which a file of these bytes is refused; checks its form and the time it took."""
    path.write_bytes(content)
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        open_gguf(path)
    assert time.perf_counter() - start < 1
    message = str(caught.value)
    assert message.startswith(str(path) + ": ")
    assert message.isprintable() and len(message) < 400, message
    return message


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mal.gguf"


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_value_type(path, version):
    kinds = (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12)
    formats = dict(zip(kinds, "BbHhIif?Qqd", strict=True))
    ones = {kind: struct.pack(f"<{letter}", 1) for kind, letter in formats.items()}
    keys = [raw.key(f"scalar.{kind}", kind, one) for kind, one in ones.items()]
    keys += [raw.array_key(f"array.{kind}", kind, 3, one * 3) for kind, one in ones.items()]
    keys += [
        raw.text_key("text", "héllo\n"),
        raw.text_key("bytes", b"\xff\xfe"),
        raw.text_key("empty", ""),
        raw.array_key("texts", raw.STRING, 3, raw.string("a\0b") + raw.string(b"\xe9") + raw.string("")),
        raw.array_key("none", raw.STRING, 0),
        raw.array_key("none.int", raw.I32, 0),
    ]
    tensors = [Tensor("a", (8, 4)), Tensor("b", (4,), 0, 128)]
    path.write_bytes(raw.build(version=version, keys=keys, tensors=tensors, data=DATA + bytes(16)))
    with open_gguf(path) as file:
        assert file.version == version
        for kind in formats:
            value, array = file.metadata[f"scalar.{kind}"], file.metadata[f"array.{kind}"]
            assert type(value) is (float if kind in (6, 12) else bool if kind == 7 else int) and value == 1
            assert isinstance(array, np.ndarray) and array.shape == (3,) and not array.flags.writeable
            assert array.dtype == (np.bool_ if kind == 7 else gguf_types.SCALARS[kind].dtype)
        assert file.metadata["text"] == "héllo\n" and file.metadata["bytes"] == b"\xff\xfe"
        assert file.metadata["empty"] == "" and file.metadata["none"] == []
        assert len(file.metadata["none.int"]) == 0
        assert file.metadata["texts"] == ["a\0b", b"\xe9", ""]
        assert file.value_types["scalar.4"] == "uint32" and file.value_types["texts"] == "array of string"
        assert file.tensors["a"].shape == (4, 8) and file.tensors["a"].nbytes == 128
        assert file.tensors["b"].offset == file.tensors["a"].offset + 128


def test_reads_what_the_gguf_package_writes(path):
    given = tiny.write_tiny(path, layers=1)
    with open_gguf(path) as file:
        assert file.metadata["tokenizer.ggml.tokens"] == tiny.vocabulary(given.vocab)[0]
        assert file.metadata["llama.context_length"] == given.context
        for name, array in tiny.tiny_tensors(given).items():
            np.testing.assert_array_equal(file.read(name), array)


def test_trailing_bytes_gaps_and_other_alignments_are_allowed(path):
    path.write_bytes(raw.build(tensors=[Tensor("a", (8,), 0, 64), Tensor("b", (8,), 0, 0)], data=bytes(200)))
    open_gguf(path).close()
    path.write_bytes(
        raw.build(
            keys=[raw.u32_key("general.alignment", 64)],
            alignment=64,
            tensors=[Tensor("a", (8,), 0, 64)],
            data=bytes(96),
        )
    )
    with open_gguf(path) as file:
        assert file.tensors["a"].offset % 64 == 0
    path.write_bytes(raw.build(keys=[NAME], alignment=0))  # no tensors: no padding needed
    with open_gguf(path) as file:
        assert file.tensors == {}


def test_arrays_outlive_the_file(path):
    path.write_bytes(raw.build(tensors=[Tensor("a", (2,))], data=struct.pack("<2f", 1.5, -2)))
    file = open_gguf(path)
    view = file.read("a")
    file.close()
    file.close()
    assert view.tolist() == [1.5, -2]
    with pytest.raises(ValueError, match="closed"):
        file.read("a")


def test_many_strings_are_read_quickly(path):
    count = 262144
    payload = b"".join(raw.string(f"token{i}") for i in range(count))
    path.write_bytes(raw.build(keys=[raw.array_key("tokens", raw.STRING, count, payload)]))
    start = time.process_time()
    with open_gguf(path) as file:
        assert time.process_time() - start < 1
        assert file.metadata["tokens"][-1] == "token262143"


value = functools.partial(raw.key, "k")
array = functools.partial(raw.array_key, "k")
aligned = functools.partial(raw.u32_key, "general.alignment")
BIG = 2**63
# Fields of a file, with DATA as its data unless given, and words of the message.
MALFORMED = {
    # The version and the counts.
    "not gguf": (dict(magic=b"PK\x03\x04"), ["magic", r"PK\x03\x04"]),
    "version 0": (dict(version=0), ["version", "is 0"]),
    "version 1": (dict(version=1), ["version", "is 1"]),
    "version 99": (dict(version=99), ["version", "is 99"]),
    "big endian": (dict(version=3 << 24), ["version", "big-endian"]),
    "tensor count 2^62": (dict(keys=[NAME], tensor_count=2**62), ["tensor count", str(2**62)]),
    "tensor count 2^64-1": (dict(tensor_count=2**64 - 1), ["tensor count", str(2**64 - 1)]),
    "tensor count one more": (
        dict(tensors=[Tensor()], tensor_count=2, alignment=0, data=b""),
        ["tensor count", "is 2", "truncated"],
    ),
    "key count 2^62": (dict(keys=[NAME], key_count=2**62), ["key count", str(2**62)]),
    "key count 2^16+1": (dict(key_count=2**16 + 1, data=bytes(2**20)), ["key count", "65536"]),
    "tensor count 2^16+1": (dict(tensor_count=2**16 + 1, data=bytes(2**22)), ["tensor count", "65536"]),
    # Keys and values.
    "key empty": (dict(keys=[raw.text_key("", "x")]), ["key 0", "empty"]),
    "key NUL": (dict(keys=[raw.text_key("a\0b", "x")]), ["key 0", "NUL"]),
    "key not UTF-8": (dict(keys=[NAME, raw.text_key(b"a\xff", "x")]), ["key 1", "UTF-8", r"a\xff"]),
    "key twice": (dict(keys=[NAME, NAME]), ["'general.name'", "twice"]),
    "key with newline twice": (dict(keys=[raw.text_key("a\nb", "x")] * 2), [r"a\nb", "twice"]),
    "key too long": (dict(keys=[raw.text_key("k" * 65536, "x")]), ["key 0", "65536", "65535"]),
    "key length 2^63": (dict(keys=[raw.string("k", length=BIG)]), ["key 0", str(BIG)]),
    "value type 13": (dict(keys=[value(13, bytes(8))]), ["'k'", "13"]),
    "bool 2": (dict(keys=[value(raw.BOOL, b"\2")]), ["'k'", "bool", "2"]),
    "value cut": (dict(keys=[value(raw.U64, bytes(3))], alignment=0, data=b""), ["'k'", "8 bytes", "3 left"]),
    "string length 2^63": (dict(keys=[value(raw.STRING, raw.string("x", length=BIG))]), ["'k'", str(BIG)]),
    "string length 2^26": (
        dict(keys=[value(raw.STRING, raw.string("x", length=2**26))]),
        ["'k'", str(2**26), "truncated"],
    ),
    "array length 2^63": (dict(keys=[array(raw.I32, BIG)]), ["'k'", str(BIG)]),
    "array length 2^64-1 of bytes": (dict(keys=[array(raw.U8, 2**64 - 1)]), ["'k'", str(2**64 - 1)]),
    "array length 2^20": (dict(keys=[array(raw.U64, 2**20)]), ["'k'", str(2**23), "truncated"]),
    "strings 2^63": (dict(keys=[array(raw.STRING, BIG)]), ["'k'", str(BIG)]),
    "strings 2^21": (dict(keys=[array(raw.STRING, 2**21)]), ["'k'", str(2**21), "truncated"]),
    "strings above the limit": (
        dict(keys=[array(raw.STRING, 2**21 + 1, bytes(2**20))]),
        ["'k'", str(2**21 + 1), str(2**21)],
    ),
    "string in array cut": (
        dict(keys=[array(raw.STRING, 2, raw.string("c") + raw.string("d", length=999))]),
        ["'k'", "string 1 of 2", "truncated"],
    ),
    "string in array 2^63": (
        dict(keys=[array(raw.STRING, 1, raw.string("d", length=BIG))]),
        ["'k'", "string 0 of 1"],
    ),
    "string in array without length": (
        dict(keys=[array(raw.STRING, 2, raw.string(bytes(8)) + b"\1")], alignment=0, data=b""),
        ["'k'", "string 1 of 2"],
    ),
    "array of arrays": (dict(keys=[array(raw.ARRAY, 1, bytes(12))]), ["'k'", "array of arrays"]),
    "array of type 99": (dict(keys=[array(99, 1)]), ["'k'", "99"]),
    "split": (dict(keys=[raw.key("split.count", 2, b"\3\0")]), ["split.count", "3"]),
    # The alignment.
    "alignment 0": (dict(keys=[aligned(0)]), ["general.alignment", "is 0"]),
    "alignment 3": (dict(keys=[aligned(3)]), ["general.alignment", "is 3"]),
    "alignment 4": (dict(keys=[aligned(4)]), ["general.alignment", "is 4"]),
    "alignment 2^31": (dict(keys=[aligned(2**31)]), ["general.alignment", str(2**31)]),
    "alignment uint64": (
        dict(keys=[raw.key("general.alignment", raw.U64, struct.pack("<Q", 32))]),
        ["general.alignment", "uint64"],
    ),
    "alignment text": (dict(keys=[raw.text_key("general.alignment", "32")]), ["general.alignment", "string"]),
    # Tensor descriptions.
    "dims 2^32 2^32": (dict(tensors=[Tensor(dims=(2**32, 2**32))]), ["'a'", str(2**66), "truncated"]),
    "dims 2^64-1 2": (dict(tensors=[Tensor(dims=(2**64 - 1, 2))]), ["'a'", str((2**64 - 1) * 8)]),
    "dims 2^62 four times": (dict(tensors=[Tensor(dims=(2**62,) * 4)]), ["'a'", str(2**250)[:20]]),
    "dims 4 0": (dict(tensors=[Tensor(dims=(4, 0))]), ["'a'", "[4, 0]"]),
    "dims 0 4": (dict(tensors=[Tensor(dims=(0, 4))]), ["'a'", "[0, 4]"]),
    "no dims": (dict(tensors=[Tensor(dims=())]), ["'a'", "0 dimensions"]),
    "5 dims": (dict(tensors=[Tensor(dims=(1, 1, 1, 1, 8))]), ["'a'", "5 dimensions"]),
    "1e6 dims": (dict(tensors=[Tensor(dim_count=10**6)]), ["'a'", "1000000 dimensions"]),
    "2^32-1 dims": (dict(tensors=[Tensor(dim_count=2**32 - 1)]), ["'a'", f"{2**32 - 1} dimensions"]),
    "half a block": (dict(tensors=[Tensor(dims=(48, 2), kind=2)]), ["'a'", "48", "Q4_0", "32"]),
    "half a K block": (dict(tensors=[Tensor(dims=(64, 4), kind=12)]), ["'a'", "64", "Q4_K", "256"]),
    "unknown type": (dict(tensors=[Tensor(kind=99)]), ["'a'", "99", "unknown"]),
    "type 2^32-1": (dict(tensors=[Tensor(kind=2**32 - 1)]), ["'a'", str(2**32 - 1)]),
    "removed type": (dict(tensors=[Tensor(kind=31)]), ["'a'", "31", "Q4_0_4_4", "removed"]),
    "offset 1": (dict(tensors=[Tensor(offset=1)]), ["'a'", "offset 1", "32"]),
    "offset 2^40": (dict(tensors=[Tensor(offset=2**40)]), ["'a'", "128 bytes", "0 of them"]),
    "offset 2^64-32": (dict(tensors=[Tensor(offset=2**64 - 32)]), ["'a'", "128 bytes", "truncated"]),
    "overlap": (dict(tensors=[Tensor("a"), Tensor("b", offset=96)], data=DATA * 2), ["'b'", "'a'", "inside"]),
    "same place": (dict(tensors=[Tensor("a"), Tensor("b")], data=DATA * 2), ["'b'", "'a'", "inside"]),
    "tensor twice": (dict(tensors=[Tensor("a"), Tensor("a", offset=128)], data=DATA * 2), ["'a'", "twice"]),
    "tensor unnamed": (dict(tensors=[Tensor("")]), ["tensor 0 name", "empty"]),
    "tensor NUL": (dict(tensors=[Tensor("a\0b")]), ["tensor 0 name", "NUL"]),
    "tensor not UTF-8": (dict(tensors=[Tensor(b"\xff\n")]), ["tensor 0 name", r"\xff\n", "UTF-8"]),
    "tensor name of 64": (dict(tensors=[Tensor("n" * 64)]), ["tensor 0 name", "64", "63"]),
    "one byte short": (
        dict(tensors=[Tensor("a"), Tensor("b", offset=128)], data=(DATA * 2)[:-1]),
        ["'b'", "128 bytes", "127 of them"],
    ),
    "no data": (dict(tensors=[Tensor()], alignment=0, data=b""), ["'a'", "128 bytes", "0 of them"]),
}


@pytest.mark.parametrize("fields, words", MALFORMED.values(), ids=MALFORMED)
def test_malformed_file_is_refused(path, fields, words):
    message = refusal(path, raw.build(**{"data": DATA, **fields}))
    for word in words:
        assert word in message, message


def test_longest_name_and_block_types_are_accepted(path):
    tensors = [Tensor("n" * 63, (32, 2), 2), Tensor("m", (256,), 12, 64)]
    path.write_bytes(raw.build(tensors=tensors, data=bytes(64 + 144)))
    with open_gguf(path) as file:
        assert file.tensors["n" * 63].nbytes == 36 and file.tensors["m"].type_name == "Q4_K"


@pytest.mark.parametrize("share", [0.25, 0.5, 0.999])
def test_file_cut_to_a_share_is_refused(path, share):
    tiny.write_tiny(path)
    content = path.read_bytes()
    message = refusal(path, content[: int(len(content) * share)])
    assert "truncated" in message and str(int(len(content) * share)) in message


def test_every_cut_of_a_small_file_is_refused(path):
    content = raw.build(
        keys=[
            NAME,
            raw.u32_key("general.alignment", 32),
            raw.array_key("k", raw.STRING, 2, raw.string("ab") * 2),
        ],
        tensors=[Tensor("a"), Tensor("b", (32,), 8, 128)],
        data=DATA + bytes(34),
    )
    path.write_bytes(content)
    open_gguf(path).close()
    for size in range(len(content)):
        message = refusal(path, content[:size])
        assert ("empty" in message) == (size == 0)


def test_last_byte_missing_names_the_last_tensor(path):
    tiny.write_tiny(path)
    with open_gguf(path) as file:
        last = max(file.tensors.values(), key=lambda info: info.offset)
    message = refusal(path, path.read_bytes()[: last.offset + last.nbytes - 1])
    assert repr(last.name) in message and f"needs {last.nbytes} bytes" in message
    assert f"{last.nbytes - 1} of them" in message


def test_paths_that_are_no_files_are_refused(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, problem in (
        (tmp_path / "absent.gguf", "no such file"),
        (tmp_path, "not a regular file"),
        (pipe, "not a regular file"),
        (tmp_path / "a\nb", "no such file"),
    ):
        with pytest.raises(InputError, match=problem) as caught:
            open_gguf(path)
        assert str(caught.value).isprintable()


def test_getters_name_file_key_and_type(path):
    keys = [
        raw.u32_key("int", 5),
        raw.key("float", raw.F32, struct.pack("<f", 0.5)),
        raw.key("bool", raw.BOOL, b"\1"),
        raw.key("nan", raw.F32, struct.pack("<f", float("nan"))),
        raw.text_key("text", "t"),
        raw.text_key("bytes", b"\xff\n"),
    ]
    path.write_bytes(raw.build(keys=keys))
    with open_gguf(path) as file:
        assert file.require_int("int") == 5 and file.require_float("float") == 0.5
        assert file.require_text("text") == "t" and file.optional_bool("bool") is True
        for optional in (file.optional_int, file.optional_float, file.optional_text, file.optional_bool):
            assert optional("absent") is None
        for call, key, words in (
            (file.require_int, "absent", "missing"),
            (file.require_float, "absent", "missing"),
            (file.require_text, "absent", "missing"),
            (file.optional_int, "float", "float32, not an integer"),
            (file.optional_int, "bool", "bool, not an integer"),
            (file.require_float, "nan", "not a finite"),
            (file.optional_float, "int", "uint32, not a float"),
            (file.optional_bool, "int", "uint32, not a bool"),
            (file.require_text, "int", "uint32, not a string"),
            (file.optional_text, "bytes", "UTF-8"),
        ):
            with pytest.raises(InputError) as caught:
                call(key)
            message = str(caught.value)
            assert message.startswith(f"{path}: {key}: ") and words in message and message.isprintable()
