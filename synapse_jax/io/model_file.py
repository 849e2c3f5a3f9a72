"""A model file as the engine sees it: spec, weights by canonical name, warnings."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.catalog import resolve_model
from synapse_jax.io.families import Layout, read_layout, unpair_rows
from synapse_jax.io.fetch import print_line
from synapse_jax.io.gguf import GgufFile, open_gguf
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer
from synapse_jax.spec.model import ModelSpec

if TYPE_CHECKING:
    from synapse_jax.io.chat import ChatTemplate


class ModelFile:
    """An open model file.

    `path`, `name`, `arch`, `gguf` and `sha256` need only the header. Everything
    else needs a model that can be run, and raises InputError if the file is not
    one: an unknown architecture, unsupported metadata, or no weights.

    Attributes:
      path: the file.
      gguf: its header; `gguf.metadata` holds the vocabulary.
      name: `general.name`, or the file's name without suffix.
      arch: `general.architecture`.
    """

    def __init__(self, gguf: GgufFile, digest: _Digest | None = None):
        self.path: pathlib.Path = gguf.path
        self.gguf = gguf
        self._digest = digest
        self.name: str = gguf.optional_text("general.name") or gguf.path.stem
        self.arch: str = gguf.require_text("general.architecture")

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; arrays that were read stay."""
        self.gguf.close()

    @functools.cached_property
    def _layout(self) -> Layout:
        return read_layout(self.gguf)

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
        tensors = self.gguf.tensors
        return {name: tensors[source.tensor].type_name for name, source in self._layout.weights.items()}

    def read_weight(self, name: str) -> np.ndarray:
        """One weight; read one at a time, little more than its float32 size is in memory.

        Args:
          name: canonical.

        Returns:
          A new float32 array of the shape in `weight_shapes`, rotary rows half-split.

        Raises:
          KeyError: for a name that `weight_names` does not have.
        """
        source = self._layout.weights[name]
        array = self.gguf.read(source.tensor)
        if source.paired_heads:
            array = unpair_rows(array, source.paired_heads, self.spec.rotary_size)
        return array

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer, built at the first use; InputError if the file has none that is supported."""
        return build_tokenizer(self.gguf.metadata, source=shown_path(self.path))

    @functools.cached_property
    def chat_template(self) -> ChatTemplate:
        """The file's chat template; InputError if it has none."""
        from synapse_jax.io.chat import read_chat_template  # commands without chat start faster

        return read_chat_template(self.gguf.metadata, shown_path(self.path))

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a continuation."""
        return self.tokenizer.stop_ids

    def sha256(self) -> str:
        """SHA-256 of the whole file in hex; reads it once. InputError if it cannot be read."""
        if self._digest is None:
            self._digest = _Digest(self.path)
        return self._digest.result()


class _Digest(threading.Thread):
    """The digest of a file, computed beside other work: hashing leaves the interpreter free."""

    def __init__(self, path: pathlib.Path):
        super().__init__(daemon=True)
        self._path = path
        self._hex = ""
        self._error: InputError | None = None
        self.start()

    def run(self) -> None:
        """Reads the file."""
        try:
            self._hex = file_sha256(self._path)
        except InputError as error:
            self._error = error

    def result(self) -> str:
        """Waits for the digest."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._hex


def file_sha256(path: pathlib.Path) -> str:
    """SHA-256 of a whole file in hex; InputError if it cannot be read."""
    digest = hashlib.sha256()
    # Large pieces: a thread that hashes beside other work waits for the interpreter after each of them.
    buffer = memoryview(bytearray(1 << 23))
    try:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
            return digest.hexdigest()
    except OSError as error:
        raise InputError(f"{shown_path(path)}: cannot be read: {error.strerror or error}") from None


def open_model_file(path: str | os.PathLike[str], *, weights: bool = True, digest: bool = False) -> ModelFile:
    """Opens a model file and checks it.

    Args:
      path: a GGUF file.
      weights: whether the file must be a model that can be run. False checks the
        header only, so that a vocabulary or an unknown architecture can be looked at.
      digest: whether to begin at once, in a thread, to read the file for `sha256`.

    Raises:
      InputError: one line that names the file and what is wrong.
    """
    begun = _Digest(pathlib.Path(path)) if digest else None
    gguf = open_gguf(path)
    try:
        model = ModelFile(gguf, begun)
        if weights:
            model.check_weights()
    except InputError:
        gguf.close()
        raise
    return model


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
      name_or_path: a name of the catalog, or a GGUF file.
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
