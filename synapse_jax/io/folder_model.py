"""A Hugging Face folder as the source of a model."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.families import Layout, WeightSource
from synapse_jax.io.families.folders import read_folder_layout
from synapse_jax.io.folder_config import Config
from synapse_jax.io.folder_files import is_model_folder, read_object
from synapse_jax.io.folder_weights import FolderWeights, open_weights
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.io.tokenizer_json import read_tokenizer_json

if TYPE_CHECKING:
    from synapse_jax.io.chat import ChatTemplate
    from synapse_jax.io.model_source import TensorInfo


class FolderModel:
    """A model in a Hugging Face folder; see `model_source.ModelSource`.

    Weights are opened when they are first asked for: a folder may have a tokenizer and no more.

    Args:
      path: the folder.

    Raises:
      InputError: it has neither config.json nor tokenizer.json, or config.json cannot be read.
    """

    format = "hugging-face folder"

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        if not is_model_folder(self.path):
            raise InputError(f"{shown_path(self.path)}: has neither config.json nor tokenizer.json")
        self.name = _name(self.path)
        config = self.path / "config.json"
        self.metadata: Mapping[str, Any] = read_object(config) if config.exists() else {}
        self.arch: str | None = self.metadata.get("model_type")
        if self.arch is not None and not isinstance(self.arch, str):
            raise InputError(f"{shown_path(config)}: model_type: is {quote(self.arch)}, not a name")
        self._opened: FolderWeights | None = None

    @functools.cached_property
    def _weights(self) -> FolderWeights:
        self._opened = open_weights(self.path)
        return self._opened

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Stored tensors; none where the weights cannot be opened, which `layout` says."""
        try:
            return self._weights.tensors
        except InputError:
            return {}

    def layout(self) -> Layout:
        """Spec and place of each weight."""
        shown = shown_path(self.path / "config.json")
        if not (self.path / "config.json").exists():
            raise InputError(f"{shown}: no such file: a model needs it beside its weights")
        return read_folder_layout(Config(shown, dict(self.metadata)), self._weights)

    def read(self, source: WeightSource) -> np.ndarray:
        """One weight."""
        rows = source.shape[0] if source.stored_rows else None
        array = self._weights.read(source.tensor, source.first_row, rows)
        if source.offset:
            array += np.float32(source.offset)
        return array

    def tokenizer(self) -> Tokenizer:
        """From tokenizer.json and the small files beside it."""
        tokenizer = read_tokenizer_json(self.path)
        rows = self.metadata.get("vocab_size")
        if isinstance(rows, int) and tokenizer.vocab_size > rows:
            # Gemma 3 without images keeps the token of an image. Session refuses such ids.
            line = (
                f"{shown_path(self.path / 'tokenizer.json')}: has {tokenizer.vocab_size} tokens, but "
                f"config.json: vocab_size is {rows}: a text with a later token cannot be evaluated"
            )
            tokenizer.warnings = (*tokenizer.warnings, line)
        return tokenizer

    def chat_template(self) -> ChatTemplate:
        """From chat_template.jinja or tokenizer_config.json."""
        from synapse_jax.io.chat import read_folder_template  # commands without chat start faster

        return read_folder_template(self.path)

    def close(self) -> None:
        """Closes the weights; arrays that were read stay."""
        if self._opened is not None:
            self._opened.close()


def _name(path: pathlib.Path) -> str:
    """The folder's name, or `org/repo` in the cache of huggingface_hub."""
    # The name of `.` is that of the folder it stands for.
    resolved = path.resolve()
    if resolved.parent.name == "snapshots" and resolved.parent.parent.name.startswith("models--"):
        return resolved.parent.parent.name.removeprefix("models--").replace("--", "/")
    return resolved.name
