"""safetensors: malformed headers are refused in one line (case 46), files of the library are read back."""

import os
import time

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from synapse_jax.errors import InputError
from synapse_jax.io.safetensors import open_safetensors
from synapse_jax.io.safetensors_header import DTYPE_BITS, parse_safetensors
from tests import hostile_safetensors as hostile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.safetensors"


@pytest.mark.parametrize("case", hostile.CASES, ids=[case.name for case in hostile.CASES])
def test_hostile_file(path, case):
    path.write_bytes(case.content)
    if case.note:
        with open_safetensors(path) as file:
            for name, tensor in file.tensors.items():
                if tensor.dtype == "F32":
                    assert file.read(name).shape == tensor.shape
        return
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        open_safetensors(path)
    assert time.process_time() - start < 2
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and message.isprintable() and len(message) < 400, message
    for word in case.words:
        assert word in message, message


def test_library_refuses_or_we_are_stricter():
    """What the library refuses we refuse; where we go further is no accident."""
    stricter = set()
    for case in hostile.CASES:
        try:
            safetensors.deserialize(case.content)
        except safetensors.SafetensorError:
            assert not case.note, case.name
        else:
            if not case.note:
                stricter.add(case.name)
    assert stricter == {
        *(
            "space before the object",
            "name twice",
            "metadata null",
            "name empty",
            "name NUL",
            "another field",
        ),
        *("header length above 4 MiB", "shape of 9 axes", "shape that wraps beside 0"),
    }


def test_files_of_the_library_are_read_back(path):
    random = np.random.RandomState(0)
    tensors = {
        "f32": random.standard_normal((3, 5)).astype(np.float32),
        "f16": random.standard_normal((7,)).astype(np.float16),
        "scalar": np.array(2.5, np.float32),
        "none": np.zeros((0, 4), np.float32),
        "counts": np.arange(6, dtype=np.int64),
        "é\n": np.float32([[[1, np.nan, np.inf, -0.0, 1e-45]]]),
    }
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np", "κ": "v\n"})
    with open_safetensors(path) as file:
        assert file.metadata == {"format": "np", "κ": "v\n"}
        assert file.tensors.keys() == tensors.keys()
        for name, array in tensors.items():
            tensor = file.tensors[name]
            assert tensor.shape == array.shape and tensor.nbytes == array.nbytes
            if name != "counts":
                got = file.read(name)
                assert got.dtype == np.float32 and got.shape == array.shape and got.flags.writeable
                np.testing.assert_array_equal(got, array.astype(np.float32))
        with pytest.raises(InputError, match="tensor 'counts': has dtype I64"):
            file.read("counts")
        with pytest.raises(InputError, match="tensor 'absent': is missing"):
            file.read("absent")
    with pytest.raises(ValueError, match="closed"):
        file.read("f32")


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_every_half_is_exact(path, dtype):
    halves = np.arange(2**16, dtype="<u2")
    path.write_bytes(hostile.build({"a": hostile.entry(dtype, [256, 256], 0, 2**17)}, halves.tobytes()))
    if dtype == "BF16":
        expected = (halves.astype(np.uint32) << 16).view(np.float32)
    else:
        expected = np.array([np.frombuffer(half.tobytes(), np.float16)[0] for half in halves]).astype(float)
    with open_safetensors(path) as file:
        np.testing.assert_array_equal(file.read("a").reshape(-1), expected)


def test_types_are_those_of_the_library():
    with pytest.raises(safetensors.SafetensorError) as caught:
        safetensors.deserialize(hostile.build({"a": hostile.entry("X")}))
    named = str(caught.value).partition("expected one of")[2]
    assert {word.strip(" `") for word in named.partition(" at line")[0].split(",")} == DTYPE_BITS.keys()
    for dtype, bits in DTYPE_BITS.items():
        content = hostile.build({"a": hostile.entry(dtype, [8], 0, bits)}, bytes(bits))
        safetensors.deserialize(content)
        assert parse_safetensors(content, "x").tensors["a"].nbytes == bits


def test_file_cut_while_it_is_open_is_refused(path):
    path.write_bytes(hostile.WHOLE)
    with open_safetensors(path) as file:
        os.truncate(path, len(hostile.WHOLE) - 1)
        with pytest.raises(InputError, match=r"tensor 'a': needs 24 bytes .* cut after it was opened"):
            file.read("a")


def test_damaged_files():
    """Thousands of broken files: a clean refusal or a clean file, nothing else."""
    whole = hostile.build(
        {"__metadata__": {"format": "pt"}, **hostile.A, "b": hostile.entry("BF16", [4], 24, 32)}, bytes(32)
    )
    random, results = np.random.RandomState(0), []
    words = [
        b"-1",
        b"1e9",
        b"true",
        b"null",
        b"[]",
        b"{}",
        b'"',
        b"9" * 30,
        b"\\u0000",
        b"\\ud800",
        b"\xff",
        b"F16",
        b",",
    ]
    for _ in range(5000):
        out = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            at, length = random.randint(len(out)), random.randint(1, 9)
            how = random.randint(4)
            if how == 0:
                out[at] = random.randint(256)
            elif how == 1:
                out[at : at + length] = words[random.randint(len(words))]
            elif how == 2:
                del out[at : min(at + length, len(out) - 1)]
            else:
                out[at:at] = out[at : at + length]
        try:
            parse_safetensors(bytes(out), "x")
            results.append(False)
        except InputError as error:
            assert str(error).startswith("x: ") and str(error).isprintable()
            results.append(True)
    assert 0.5 < np.mean(results) < 0.999
