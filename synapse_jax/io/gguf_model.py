"""A GGUF file as the source of a model."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.gguf_header import TensorInfo
from synapse_jax.io.gguf_split import plain_stem
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer

if TYPE_CHECKING:  # families and chat are loaded when used: tokenizing needs neither
    from synapse_jax.io.chat import ChatTemplate
    from synapse_jax.io.families import Layout, WeightSource


class GgufModel:
    """A model in a GGUF file; see `model_source.ModelSource`.

    Args:
      gguf: the open file, or all parts of one that is split.
      path: what was asked for: of a split file any part.
    """

    def __init__(self, gguf: GgufFile, path: pathlib.Path):
        self.gguf = gguf
        self.path = path
        self.name: str = gguf.optional_text("general.name") or plain_stem(path)
        self.arch: str = gguf.require_text("general.architecture")
        self.format = f"gguf {gguf.version}"
        self.metadata: Mapping[str, Any] = gguf.metadata
        self.tensors: Mapping[str, TensorInfo] = gguf.tensors
        self._rotary_size = 0

    def layout(self) -> Layout:
        """Spec and place of each weight."""
        from synapse_jax.io.families import read_layout

        found = read_layout(self.gguf)
        self._rotary_size = found.spec.rotary_size
        return found

    def read(self, source: WeightSource) -> np.ndarray:
        """One weight; `layout` has been asked for."""
        rows = source.shape[0] if source.stored_rows else None
        array = self.gguf.read(source.tensor, source.first_row, rows)
        if source.paired_heads:
            from synapse_jax.io.families import unpair_rows

            array = unpair_rows(array, source.paired_heads, self._rotary_size)
        return array

    def tokenizer(self) -> Tokenizer:
        """From the metadata."""
        return build_tokenizer(self.gguf.metadata, source=shown_path(self.gguf.path))

    def chat_template(self) -> ChatTemplate:
        """From the metadata."""
        from synapse_jax.io.chat import read_chat_template  # commands without chat start faster

        return read_chat_template(self.gguf.metadata, shown_path(self.gguf.path))

    def close(self) -> None:
        """Closes the file."""
        self.gguf.close()
