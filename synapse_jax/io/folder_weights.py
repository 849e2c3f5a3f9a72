"""The weights of a Hugging Face folder: one safetensors file, or several with an index."""

from __future__ import annotations

import contextlib
import pathlib

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.folder_files import INDEX, WEIGHTS, read_object
from synapse_jax.io.quoting import listed, quote, shown_path
from synapse_jax.io.safetensors import SafetensorsFile, open_safetensors
from synapse_jax.io.safetensors_header import StoredTensor

_OTHERS = ("pytorch_model*.bin*", "*.pth", "*.pt", "*.safetensors", "*.gguf", "*.msgpack", "*.h5")
_LISTED = 4


class FolderWeights:
    """Open weights of a folder, checked as far as headers and index go.

    Attributes:
      tensors: where each tensor lies, by name.
      warnings: what is unusual and changes no number, one line each.
      shown: the file that names the tensors, for messages: the index, or the only one.
    """

    def __init__(self, shown: str, files: dict[str, SafetensorsFile], warnings: list[str]):
        self.shown = shown
        self.warnings = tuple(warnings)
        self._files = files
        self.tensors: dict[str, StoredTensor] = {name: file.tensors[name] for name, file in files.items()}

    def close(self) -> None:
        """Lets go of the files; arrays that were read stay."""
        for file in self._files.values():
            file.close()

    def fail(self, field: str, problem: str) -> InputError:
        """An InputError that names the file with the names and a field; the caller raises it."""
        return InputError(f"{self.shown}: {field}: {problem}")

    def require(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuses a tensor that is missing, has another shape, or cannot be turned into float32."""
        if name not in self._files:
            raise self.fail(f"tensor {quote(name)}", f"is missing ({len(self.tensors)} tensors are there)")
        file = self._files[name]
        file.require_readable(name)
        stored = self.tensors[name].shape
        if stored != shape:
            raise file.fail(
                f"tensor {quote(name)}", f"has shape {list(stored)}, config.json asks for {list(shape)}"
            )

    def read(self, name: str, first_row: int = 0, rows: int | None = None) -> np.ndarray:
        """A tensor or a range of its rows as a new float32 array; see `SafetensorsFile.read`."""
        return self._files[name].read(name, first_row, rows)

    def equal(self, one: str, other: str) -> bool:
        """Whether two tensors have the same type, shape and bits."""
        a, b = self.tensors[one], self.tensors[other]
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return self._files[one].same_bytes(one, self._files[other], other)


def open_weights(folder: pathlib.Path) -> FolderWeights:
    """Opens the weights of a folder.

    `model.safetensors` counts before an index, as in transformers. Only tensors that the index names are
    there; of those in its files and not in it, a warning tells.

    Raises:
      InputError: no weights, weights in another format, a file or an index that is malformed, an index
        that does not fit the files.
    """
    warnings: list[str] = []
    path, index = folder / WEIGHTS, folder / INDEX
    if path.exists():
        if index.exists():
            warnings.append(f"{INDEX} is not used: {WEIGHTS} is there")
        file = open_safetensors(path)
        if not file.tensors:
            file.close()
            raise file.fail("tensors", "there are none")
        return FolderWeights(shown_path(path), dict.fromkeys(file.tensors, file), warnings)
    if not index.exists():
        raise _no_weights(folder)
    with contextlib.ExitStack() as opened:
        files = _open_shards(folder, _places(index), opened, warnings)
        opened.pop_all()
    return FolderWeights(shown_path(index), files, warnings)


def _no_weights(folder: pathlib.Path) -> InputError:
    others = sorted({path.name for pattern in _OTHERS for path in folder.glob(pattern)})
    if not others:
        return InputError(f"{shown_path(folder)}: has no weights: neither {WEIGHTS} nor {INDEX}")
    listed = ", ".join(quote(name) for name in others[:_LISTED]) + (" …" if len(others) > _LISTED else "")
    return InputError(
        f"{shown_path(folder)}: has neither {WEIGHTS} nor {INDEX}; the weights in {listed} cannot be read: "
        "save the model as safetensors"
    )


def _places(index: pathlib.Path) -> dict[str, str]:
    """File of each tensor, as the index says."""
    shown = shown_path(index)
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InputError(
            f"{shown}: weight_map: is {quote(places)}, not an object with a file for each tensor"
        )
    for name, file in places.items():
        # A plain name: an index must not lead out of its folder.
        if not isinstance(file, str) or pathlib.PurePath(file).name != file or "\0" in file or not file:
            raise InputError(
                f"{shown}: weight_map: {quote(name)} is in {quote(file)}, not in a file of this folder"
            )
    return places


def _open_shards(
    folder: pathlib.Path, places: dict[str, str], opened: contextlib.ExitStack, warnings: list[str]
) -> dict[str, SafetensorsFile]:
    shown = shown_path(folder / INDEX)
    shards: dict[str, SafetensorsFile] = {}
    for name in sorted(set(places.values())):
        if not (folder / name).exists():
            tensor = next(tensor for tensor, file in places.items() if file == name)
            raise InputError(
                f"{shown}: weight_map: {quote(tensor)} is in {quote(name)}, which is not in the folder "
                f"({len(set(places.values()))} files are named)"
            )
        shards[name] = opened.enter_context(open_safetensors(folder / name))
    for name, file in places.items():
        if name not in shards[file].tensors:
            raise shards[file].fail(f"tensor {quote(name)}", f"is missing: {INDEX} says that it is here")
    stray = []
    for file, shard in shards.items():
        for name in shard.tensors:
            if name not in places:
                stray.append(name)
            elif places[name] != file:
                raise shard.fail(f"tensor {quote(name)}", f"is also in {quote(places[name])}")
    warnings += listed(f"tensors that {INDEX} does not name, not used", stray)
    total = read_object(folder / INDEX).get("metadata")
    given = total.get("total_size") if isinstance(total, dict) else None
    stored = sum(shards[file].tensors[name].nbytes for name, file in places.items())
    if given is not None and given != stored:
        warnings.append(f"{INDEX}: metadata.total_size is {quote(given)}, the tensors have {stored} bytes")
    return {name: shards[file] for name, file in places.items()}
