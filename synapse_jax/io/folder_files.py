"""The files of a Hugging Face folder that a model is read from."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.io.json_text import unique_keys
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.text_file import read_bytes

SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
"""Files beside the weights, as far as they are there."""
WEIGHTS = "model.safetensors"
"""All weights in one file; counts before an index, as in transformers."""
INDEX = "model.safetensors.index.json"
"""Which file each weight is in, where there are several."""


def is_model_folder(path: pathlib.Path) -> bool:
    """Whether a folder has at least a tokenizer or a configuration."""
    return _is_file(path / "config.json") or _is_file(path / "tokenizer.json")


def folder_files(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every file that a folder's model is read from, by its name in the folder.

    The settings, templates, and either `model.safetensors` or the index and the files that it names.
    What the index names and the folder lacks is left out; opening the weights refuses it.
    """
    names = [*SETTINGS, *(f"additional_chat_templates/{path.name}" for path in template_files(folder))]
    if (folder / WEIGHTS).exists():
        names.append(WEIGHTS)
    elif (folder / INDEX).exists():
        names += [INDEX, *_named_by_index(folder)]
    return {name: folder / name for name in names if _is_file(folder / name)}


def template_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Chat templates beside the usual one."""
    return sorted((folder / "additional_chat_templates").glob("*.jinja"))


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """A file that holds one JSON object.

    Raises:
      InputError: it cannot be read, is not JSON, has a key twice, or is another value.
    """
    shown = shown_path(path)
    try:
        stored = json.loads(read_bytes(path), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{shown}: not JSON: {quote(str(error))}") from None
    if not isinstance(stored, dict):
        raise InputError(f"{shown}: is not a JSON object")
    return stored


def _is_file(path: pathlib.Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be read
        return False


def _named_by_index(folder: pathlib.Path) -> list[str]:
    try:
        places = read_object(folder / INDEX).get("weight_map")
    except InputError:
        return []
    found = places.values() if isinstance(places, dict) else ()
    return sorted({name for name in found if isinstance(name, str) and pathlib.PurePath(name).name == name})
