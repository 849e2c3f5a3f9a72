"""GGUF files in several parts that tests make, by the gguf package as its converters do."""

from __future__ import annotations

from pathlib import Path

import gguf

from tests.gguf_writing import add_value, finish
from tests.tiny import Tiny, tiny_metadata, tiny_tensors


def part(folder: Path, number: int, count: int = 3) -> Path:
    """Where a part is; numbers begin with 1."""
    return folder / f"tiny-{number:05}-of-{count:05}.gguf"


def write_parts(folder: Path, tiny: Tiny | None = None, empty_first: bool = False) -> None:
    """Writes a TINY model in three parts; with `empty_first` the first has metadata only."""
    tiny = tiny or Tiny()
    tensors = tiny_tensors(tiny)
    each = -(-len(tensors) // (2 if empty_first else 3))
    writer = gguf.GGUFWriter(
        folder / "tiny.gguf", tiny.arch, split_max_tensors=each, small_first_shard=empty_first
    )
    for name, value in tiny_metadata(tiny).items():
        add_value(writer, name, value)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    finish(writer)
