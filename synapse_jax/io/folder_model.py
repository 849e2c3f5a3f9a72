"""A Hugging Face folder as the source of a model. Only its tokenizer and chat template can be used yet."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.families import Layout, WeightSource
from synapse_jax.io.folder_files import is_model_folder, read_object
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.io.tokenizer_json import read_tokenizer_json

if TYPE_CHECKING:
    from synapse_jax.io.chat import ChatTemplate
    from synapse_jax.io.model_source import TensorInfo


class FolderModel:
    """A model in a Hugging Face folder; see `model_source.ModelSource`.

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
        # The name of `.` is that of the folder it stands for.
        self.name = self.path.resolve().name
        config = self.path / "config.json"
        self.metadata: Mapping[str, Any] = read_object(config) if config.exists() else {}
        self.arch: str | None = self.metadata.get("model_type")
        if self.arch is not None and not isinstance(self.arch, str):
            raise InputError(f"{shown_path(config)}: model_type is {quote(self.arch)}, not a name")
        self.tensors: Mapping[str, TensorInfo] = {}

    def layout(self) -> Layout:
        """Not yet."""
        raise InputError(f"{shown_path(self.path)}: weights of a Hugging Face folder cannot be read yet")

    def read(self, source: WeightSource) -> np.ndarray:
        """Not yet."""
        raise NotImplementedError(source.tensor)

    def tokenizer(self) -> Tokenizer:
        """From tokenizer.json and the small files beside it."""
        return read_tokenizer_json(self.path)

    def chat_template(self) -> ChatTemplate:
        """From chat_template.jinja or tokenizer_config.json."""
        from synapse_jax.io.chat import read_folder_template  # commands without chat start faster

        return read_folder_template(self.path)

    def close(self) -> None:
        """Nothing is open."""
