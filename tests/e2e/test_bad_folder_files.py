"""Folders whose files must be refused, or do not fit together (case 46): exit code 2, one line that names
the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.test_bad_folders import refusal
from tests.folders import change_header, folder_tensors, write_folder, write_safetensors
from tests.tiny import Tiny

INDEX = "model.safetensors.index.json: "
ONE = np.ones(64, np.float32)


def change_index(folder: Path, change: Callable[[dict], None]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def shard(number: int) -> str:
    return f"model-0000{number}-of-00003.safetensors"


def _repeat(folder: Path) -> None:
    tensors = folder_tensors(Tiny())
    names = list(tensors)
    write_safetensors(folder / shard(1), {name: tensors[name] for name in names[:9]})


def _overlap(header: str) -> str:
    """One matrix lies where another one of its size does."""
    entries = json.loads(header)
    gate, up = (entries[f"model.layers.0.mlp.{part}_proj.weight"] for part in ("gate", "up"))
    up["data_offsets"] = gate["data_offsets"]
    return json.dumps(entries)


def _header_length(length: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        stored = (folder / shard(2)).read_bytes()
        (folder / shard(2)).write_bytes(length.to_bytes(8, "little") + stored[8:])

    return change


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json: no such file"),
    "config is a list": (
        lambda folder: (folder / "config.json").write_text("[]"), "config.json: is not a JSON object",
    ),
    "config is cut": (lambda folder: (folder / "config.json").write_text('{"a": '), "config.json: not JSON"),
    "config is not UTF-8": (
        lambda folder: (folder / "config.json").write_bytes(b'{"a": "\xff"}'), "config.json: not JSON",
    ),
    "a field twice": (
        lambda folder: (folder / "config.json").write_text('{"vocab_size": 1, "vocab_size": 2}'),
        "'vocab_size' is there",
    ),
    "a missing shard": (lambda folder: (folder / shard(2)).unlink(), f"{INDEX}weight_map: "),
    "an empty shard": (lambda folder: (folder / shard(2)).write_bytes(b""), f"{shard(2)}: the file is empty"),
    "a cut shard": (
        lambda folder: (folder / shard(2)).write_bytes((folder / shard(2)).read_bytes()[:-1]),
        f"{shard(2)}: tensor ",
    ),
    "a shard without its tensor": (
        lambda folder: write_safetensors(folder / shard(3), {"x": ONE}), f"{shard(3)}: tensor 'model.",
    ),
    "a name twice in a shard": (
        lambda folder: change_header(folder / shard(2), lambda text: text.replace("up_proj", "gate_proj")),
        f"{shard(2)}: header: has 'model.layers.0.mlp.gate_proj.weight' twice",
    ),
    "a header of 2^63 bytes": (_header_length(2**63), f"{shard(2)}: header length: is {2**63}"),
    "overlapping tensors": (
        lambda folder: change_header(folder / shard(2), _overlap),
        "_proj.weight': starts at offset",
    ),
    "bytes after the last tensor": (
        lambda folder: (folder / shard(2)).write_bytes((folder / shard(2)).read_bytes() + b"x"),
        f"{shard(2)}: data: 1 bytes follow tensor ",
    ),
    "an absent tensor in the index": (
        lambda folder: change_index(folder, lambda index: index["weight_map"].update(foo=shard(2))),
        f"{shard(2)}: tensor 'foo': is missing: {INDEX[:-2]} says that it is here",
    ),
    "a name twice in the index": (
        lambda folder: (folder / INDEX[:-2]).write_text(
            (folder / INDEX[:-2]).read_text().replace("up_proj", "gate_proj")
        ),
        "'model.layers.0.mlp.gate_proj.weight' is there twice",
    ),
    "a tensor in two shards": (_repeat, f"is also in '{shard(2)}'"),
    "index is cut": (lambda folder: (folder / INDEX[:-2]).write_text("{"), f"{INDEX}not JSON"),
    "no weight_map": (
        lambda folder: change_index(folder, lambda index: index.pop("weight_map")), "weight_map: is None",
    ),
    "weight_map is a list": (
        lambda folder: change_index(folder, lambda index: index.update(weight_map=[])),
        "weight_map: is an array",
    ),
    "a place is a number": (
        lambda folder: change_index(folder, lambda index: index["weight_map"].update(x=1)),
        "weight_map: 'x' is in 1",
    ),
    "a place outside": (
        lambda folder: change_index(folder, lambda index: index["weight_map"].update(x="../x.safetensors")),
        "weight_map: 'x' is in '../x.safetensors', not in a file of this folder",
    ),
    "model.safetensors without tensors": (
        lambda folder: write_safetensors(folder / "model.safetensors", {}),
        "model.safetensors: tensors: there are none",
    ),
    "model.safetensors that is none": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"version https://git-lfs"),
        "model.safetensors: header",
    ),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_bad_files_are_refused(synapse, tmp_path, what):
    change, words = FILES[what]
    write_folder(tmp_path, Tiny(), shards=3)
    change(tmp_path)
    message = refusal(synapse, tmp_path)
    assert f"{tmp_path}/" in message and words in message, message


def test_weights_in_another_format_are_named(synapse, tmp_path):
    write_folder(tmp_path, Tiny())
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert "the weights in 'pytorch_model.bin' cannot be read: save the model as safetensors" in refusal(
        synapse, tmp_path
    )
    (tmp_path / "pytorch_model.bin").unlink()
    assert "has no weights: neither model.safetensors nor" in refusal(synapse, tmp_path)


def test_a_dtype_that_cannot_be_read_is_named(synapse, tmp_path):
    write_folder(tmp_path, Tiny(), dtype="F64")
    assert "has dtype F64, which cannot be read as float32; F32, F16, BF16 can" in refusal(synapse, tmp_path)
