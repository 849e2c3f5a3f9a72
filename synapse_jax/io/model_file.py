"""A model file as the engine sees it: spec, weights by canonical name, warnings."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.catalog import resolve_model
from synapse_jax.io.fetch import print_line
from synapse_jax.io.file_digest import Digest, file_sha256, files_sha256
from synapse_jax.io.folder_files import folder_files
from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.gguf_model import GgufModel
from synapse_jax.io.gguf_split import open_split, split_files
from synapse_jax.io.model_source import ModelSource, TensorInfo
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.spec.model import ModelSpec

if TYPE_CHECKING:
    from synapse_jax.io.chat import ChatTemplate
    from synapse_jax.io.families import Layout


class ModelFile:
    """An open model: a GGUF file, or a Hugging Face folder.

    `path`, `name`, `arch`, `format`, `metadata`, `tensors` and `sha256` need only
    headers. Spec and weights need a model that can be run, and raise InputError if
    it is not one: an unknown architecture, unsupported metadata, or no weights.

    Attributes:
      path: the file or folder.
      name: what the model calls itself, or the name of its file or folder.
      arch: `general.architecture` of a GGUF file, `model_type` of a folder's config.json;
        None for a folder without one.
      format: `gguf 3`, or `hugging-face folder`.
      metadata: GGUF keys, or the fields of config.json.
    """

    def __init__(self, source: ModelSource, digest: Digest | None = None):
        self._source = source
        self._digest = digest
        self.path: pathlib.Path = source.path
        self.name: str = source.name
        self.arch: str | None = source.arch
        self.format: str = source.format
        self.metadata: Mapping[str, Any] = source.metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Stored tensors by the format's own names; none where a folder's weights cannot be opened."""
        return self._source.tensors

    @property
    def gguf(self) -> GgufFile | None:
        """The header of a GGUF file; None for a folder."""
        return self._source.gguf if isinstance(self._source, GgufModel) else None

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; arrays that were read stay."""
        self._source.close()

    @functools.cached_property
    def _layout(self) -> Layout:
        return self._source.layout()

    @property
    def spec(self) -> ModelSpec:
        """What the model computes."""
        return self._layout.spec

    @property
    def warnings(self) -> tuple[str, ...]:
        """Defaults in force, and keys and tensors that are not used; one line each, without the path."""
        return self._layout.warnings

    def check_weights(self) -> None:
        """Checks that every weight is there, with its shape and a readable type; InputError if not."""
        _ = self._layout

    def weight_names(self) -> tuple[str, ...]:
        """Canonical names in the order of the forward pass; see `families.decoder.decoder_weights`."""
        return tuple(self._layout.weights)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight; [out, in] for a linear."""
        return {name: source.shape for name, source in self._layout.weights.items()}

    def weight_types(self) -> dict[str, str]:
        """The stored type of each weight, for example `Q4_1`."""
        return {name: self.tensors[source.tensor].type_name for name, source in self._layout.weights.items()}

    def read_weight(self, name: str) -> np.ndarray:
        """One weight; read one at a time, little more than its float32 size is in memory.

        Args:
          name: canonical.

        Returns:
          A new float32 array of the shape in `weight_shapes`, rotary rows half-split.

        Raises:
          KeyError: for a name that `weight_names` does not have.
        """
        return self._source.read(self._layout.weights[name])

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, built at the first use; InputError if it has none that is supported."""
        return self._source.tokenizer()

    @functools.cached_property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; InputError if it has none."""
        return self._source.chat_template()

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a continuation."""
        return self.tokenizer.stop_ids

    def sha256(self) -> str:
        """SHA-256 in hex; reads the files once. InputError if one cannot be read.

        Of a file, its own. Of a folder, and of a file that is split, that of a line
        `NAME SHA256` for each of `folder_files.folder_files`, or for each part, in the
        order of the names.
        """
        if self._digest is None:
            self._digest = Digest(lambda: _sha256(self.path))
        return self._digest.result()


def _sha256(path: pathlib.Path) -> str:
    several = folder_files(path) if path.is_dir() else split_files(path)
    return files_sha256(several) if several or path.is_dir() else file_sha256(path)


def open_model_file(path: str | os.PathLike[str], *, weights: bool = True, digest: bool = False) -> ModelFile:
    """Opens a model and checks it.

    Args:
      path: a GGUF file, any part of a split one, or a Hugging Face folder.
      weights: whether the file must be a model that can be run. False checks the
        header only, so that a vocabulary or an unknown architecture can be looked at.
      digest: whether to begin at once, in a thread, to read the files for `sha256`.

    Raises:
      InputError: one line that names the file and what is wrong.
    """
    path = pathlib.Path(path)
    begun = Digest(lambda: _sha256(path)) if digest else None
    source = _folder_source(path) if path.is_dir() else GgufModel(open_split(path), path)
    try:
        model = ModelFile(source, begun)
        if weights:
            model.check_weights()
    except InputError:
        source.close()
        raise
    return model


def _folder_source(path: pathlib.Path) -> ModelSource:
    from synapse_jax.io.folder_model import FolderModel  # GGUF files need none of it

    return FolderModel(path)


def load(
    name_or_path: str | os.PathLike[str],
    *,
    weights: bool = True,
    digest: bool = False,
    log: Callable[[str], None] = print_line,
    bar: bool | None = None,
) -> ModelFile:
    """Opens a model by catalog name or path; a catalog model is fetched once.

    Args:
      name_or_path: a name of the catalog or of the hub, a GGUF file or a Hugging Face folder.
      weights: as in `open_model_file`.
      digest: as in `open_model_file`.
      log: receives progress lines while a model is fetched.
      bar: show a bar of the download; None: when standard error is a terminal.

    Raises:
      InputError: neither a name nor a usable file.
      RunError: fetching failed.
    """
    path = resolve_model(name_or_path, log=log, bar=bar)
    return open_model_file(path, weights=weights, digest=digest)
