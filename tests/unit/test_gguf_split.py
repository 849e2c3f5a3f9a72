"""GGUF files in several parts: opened by any of them, and refused where they do not fit together."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.model_file import open_model_file
from tests.gguf_writing import finish
from tests.split_gguf import part, write_parts
from tests.tiny import Tiny, tiny_weights, write_tiny


def write_raw(path: Path, keys: dict[str, int], tensors: tuple[str, ...] = ()) -> None:
    """A part with these uint16 and int32 keys and small tensors, whatever the others say."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in keys.items():
        writer.add_key_value(name, value, gguf.GGUFValueType.UINT16)
    for name in tensors:
        writer.add_tensor(name, np.zeros(32, np.float32))
    finish(writer)


@pytest.mark.parametrize("arch, empty_first", [("llama", False), ("phi3", True)])
def test_a_split_model_is_the_model(tmp_path, arch, empty_first):
    write_parts(tmp_path, Tiny(arch), empty_first)
    write_tiny(tmp_path / "whole.gguf", arch)
    names = sorted(path.name for path in tmp_path.glob("tiny-*"))
    assert len(names) == 3
    lines = [f"{name} {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}\n" for name in names]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    with open_model_file(tmp_path / "whole.gguf") as whole:
        for name in names:
            with open_model_file(tmp_path / name, digest=True) as model:
                assert model.path == tmp_path / name and model.sha256() == digest
                assert (model.name, model.arch, model.spec) == (whole.name, whole.arch, whole.spec)
                assert set(model.tensors) == set(whole.tensors) and model.warnings == whole.warnings
                assert model.tokenizer.encode("hear the rain") == whole.tokenizer.encode("hear the rain")
                for weight in whole.weight_names():
                    np.testing.assert_array_equal(model.read_weight(weight), whole.read_weight(weight))
    assert np.array_equal(
        model_weight(tmp_path / names[-1], "layers.1.v"), tiny_weights(Tiny(arch))["layers.1.v"]
    )


def model_weight(path: Path, name: str) -> np.ndarray:
    with open_model_file(path) as model:
        return model.read_weight(name)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        open_model_file(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_part_is_named(tmp_path, number):
    write_parts(tmp_path)
    part(tmp_path, number).unlink()
    for other in {1, 2, 3} - {number}:
        message = refusal(part(tmp_path, other))
        assert message.startswith(f"{part(tmp_path, number)}: no such file")
        assert "split.count is 3" in message


def test_a_part_under_another_name_is_refused(tmp_path):
    write_parts(tmp_path)
    part(tmp_path, 2).rename(tmp_path / "other.gguf")
    assert f"{tmp_path / 'other.gguf'}: split.count: is 3, but the file is not called" in refusal(
        tmp_path / "other.gguf"
    )
    (tmp_path / "other.gguf").rename(part(tmp_path, 2, count=4))
    assert "split.count: is 3" in refusal(part(tmp_path, 2, count=4))
    part(tmp_path, 2, count=4).rename(part(tmp_path, 7))
    assert "says part 7" in refusal(part(tmp_path, 7))


def test_swapped_parts_are_refused(tmp_path):
    write_parts(tmp_path)
    part(tmp_path, 2).rename(tmp_path / "x")
    part(tmp_path, 3).rename(part(tmp_path, 2))
    (tmp_path / "x").rename(part(tmp_path, 3))
    assert f"{part(tmp_path, 2)}: split.no: is 2, its name and the other parts say 1" in refusal(
        part(tmp_path, 1)
    )


@pytest.mark.parametrize(
    "keys, tensors, words",
    [
        ({"split.no": 1}, (), "split.count: is missing"),
        ({"split.count": 2}, (), "split.no: is missing"),
        ({"split.count": 3, "split.no": 1}, (), "split.count: is 3, its name and the other parts say 2"),
        ({"split.count": 2, "split.no": 0}, (), "split.no: is 0"),
        (
            {"split.count": 2, "split.no": 1, "split.tensors.count": 7}, ("b",),
            "split.tensors.count: is 7, the 2 parts have 2",
        ),
        ({"split.count": 2, "split.no": 1}, ("a",), "tensor 'a': is also in"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(tmp_path, keys, tensors, words):
    first, second = part(tmp_path, 1, 2), part(tmp_path, 2, 2)
    write_raw(first, {"split.count": 2, "split.no": 0}, ("a",))
    write_raw(second, keys, tensors)
    message = refusal(first)
    assert message.startswith(f"{second}: {words}"), message


def test_a_part_that_is_malformed_is_named(tmp_path):
    write_parts(tmp_path)
    part(tmp_path, 3).write_bytes(b"GGUF")
    assert refusal(part(tmp_path, 1)).startswith(f"{part(tmp_path, 3)}: ")


def test_a_file_of_one_part_is_a_file(tmp_path):
    path = tmp_path / "tiny-00001-of-00001.gguf"
    write_tiny(path, mutate=lambda metadata, _: metadata.update({"split.count": 1, "split.no": 0}))
    with open_model_file(path) as model:
        assert model.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
