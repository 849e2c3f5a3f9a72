"""GGUF headers: what is accepted, and every malformed file refused in one line (cases 18, 19, 20, 52)."""

import os
import struct
import time

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io import gguf_cursor, gguf_types
from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.model_file import open_model_file
from tests import raw_gguf as raw
from tests import tiny
from tests.hostile_gguf import HEADERS, small_parts
from tests.raw_gguf import Tensor

NAME = raw.text_key("general.name", "x")
DATA = bytes(8 * 4 * 4)


def refusal(path, content):
    """The message with which a file of these bytes is refused; checks its form and the time it took."""
    path.write_bytes(content)
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        open_model_file(path, weights=False)
    assert time.process_time() - start < 2
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


@pytest.mark.parametrize("window", [16, 64, 1 << 20])
def test_strings_are_read_alike_whatever_lies_beside_them(path, monkeypatch, window):
    monkeypatch.setattr(gguf_cursor, "_WINDOW", window)
    entries = [
        b"a",
        b"",
        "é".encode(),
        b"a\0b",
        b"\xc3",
        b"\xa9",
        b"\xff" * 40,
        b"x" * 300,
        "\U0001f600".encode(),
    ]
    random = np.random.RandomState(0)
    for _ in range(200):
        chosen = [entries[index] for index in random.randint(0, len(entries), random.randint(1, 40))]
        keys = [raw.array_key("k", raw.STRING, len(chosen), b"".join(map(raw.string, chosen))), NAME]
        path.write_bytes(raw.build(keys=keys))
        with open_gguf(path) as file:
            assert file.metadata["k"] == [gguf_cursor.text_or_bytes(entry) for entry in chosen]
            assert file.metadata["general.name"] == "x"


def test_file_cut_while_it_is_open_is_refused_before_its_bytes_are_touched(path):
    tensors = [Tensor("a", (2,)), Tensor("b", (2**20,), 0, 32)]
    path.write_bytes(raw.build(tensors=tensors, data=struct.pack("<2f", 1.5, -2) + bytes(24 + 4 * 2**20)))
    with open_gguf(path) as file:
        os.truncate(path, file.tensors["b"].offset + 10)
        assert file.read("a").tolist() == [1.5, -2]
        with pytest.raises(InputError, match=r"tensor 'b': needs 4194304 bytes .* cut after it was opened"):
            file.read("b")


def test_many_strings_are_read_quickly(path):
    count = 262144
    payload = b"".join(raw.string(f"token{i}") for i in range(count))
    path.write_bytes(raw.build(keys=[raw.array_key("tokens", raw.STRING, count, payload)]))
    start = time.process_time()
    with open_gguf(path) as file:
        assert time.process_time() - start < 1
        assert file.metadata["tokens"][-1] == "token262143"


@pytest.mark.parametrize(
    "case", [case for case in HEADERS if not case.note], ids=[case.name for case in HEADERS if not case.note]
)
def test_malformed_file_is_refused(path, case):
    message = refusal(path, case.make())
    for word in case.words:
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
    content = b"".join(small_parts())
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
