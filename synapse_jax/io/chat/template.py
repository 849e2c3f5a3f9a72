"""Where model files keep their chat templates."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.json_text import parse_json
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.text_file import read_text


class MissingTemplate(InputError):
    """A file has no chat template."""


_KEY = "tokenizer.chat_template"
_SPECIAL_IDS = {
    "bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id", "pad_token": "padding_token_id", "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}  # fmt: skip
"""Variables of transformers' templates, and the GGUF keys of their ids."""
_LISTED = 8


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """A template and what it comes from."""

    text: str
    """jinja2 source."""
    source: str
    """The file, for messages."""
    name: str = "default"
    """Its name, where a file has several."""
    special_tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables for the template: `bos_token`, `eos_token` and others, those that the file names."""


def read_chat_template(metadata: Mapping[str, Any], source: str, name: str | None = None) -> ChatTemplate:
    """A chat template of a GGUF file.

    Args:
      metadata: GGUF keys to values.
      source: Name of the file, for messages.
      name: One of `tokenizer.chat_templates`; None or "default" is `tokenizer.chat_template`.

    Raises:
      InputError: the file has no such template, or it is not text.
    """
    found = {}
    if _KEY in metadata:
        found["default"] = _text(metadata[_KEY], f"{source}: {_KEY}")
    names = metadata.get("tokenizer.chat_templates", [])
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise InputError(f"{source}: tokenizer.chat_templates is {quote(names)}, not a list of names")
    for other in names:
        key = f"{_KEY}.{other}"
        if not isinstance(other, str) or key not in metadata:
            raise InputError(
                f"{source}: tokenizer.chat_templates names {quote(other)}, which has no {quote(key)}"
            )
        found[other] = _text(metadata[key], f"{source}: {quote(key)[1:-1]}")
    return _choose(found, source, name, _gguf_tokens(metadata))


def read_folder_template(folder: str | os.PathLike[str], name: str | None = None) -> ChatTemplate:
    """A chat template of a Hugging Face folder.

    As transformers: chat_template.jinja and additional_chat_templates/NAME.jinja if there are
    any, else `chat_template` of tokenizer_config.json, a text or a list of {"name", "template"}.

    Args:
      folder: The folder.
      name: One of several templates; None is "default".

    Raises:
      InputError: no such template, or a file that cannot be read.
    """
    folder = Path(folder)
    path = folder / "tokenizer_config.json"
    config = _read_config(path) if path.exists() else {}
    found, source = _config_templates(config.get("chat_template"), shown_path(path)), shown_path(path)
    files = {file.stem: file for file in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").exists():
        files["default"] = folder / "chat_template.jinja"
    if files:
        found = {key: read_text(file) for key, file in files.items()}
        chosen = files.get(name or "default")
        source = shown_path(chosen or folder)
    elif not found:
        source = shown_path(folder)
    tokens = {key: _token_text(config.get(key)) for key in _SPECIAL_IDS}
    return _choose(found, source, name, {key: text for key, text in tokens.items() if text is not None})


def _choose(
    found: dict[str, str], source: str, name: str | None, special_tokens: dict[str, str]
) -> ChatTemplate:
    if not found:
        raise MissingTemplate(
            f"{source}: has no chat template: it is not a chat model, or the template was left out; "
            "give the prompt as it is"
        )
    wanted = name or "default"
    if wanted not in found:
        shown = ", ".join(quote(key) for key in list(found)[:_LISTED]) + (
            " …" if len(found) > _LISTED else ""
        )
        raise InputError(f"{source}: has no chat template {quote(wanted)}; it has {len(found)}: {shown}")
    return ChatTemplate(found[wanted], source, wanted, special_tokens)


def _gguf_tokens(metadata: Mapping[str, Any]) -> dict[str, str]:
    pieces = metadata.get("tokenizer.ggml.tokens")
    found = {}
    for variable, key in _SPECIAL_IDS.items():
        index = metadata.get(f"tokenizer.ggml.{key}")
        # Ids outside the vocabulary are refused where the tokenizer is built.
        if isinstance(index, int | np.integer) and isinstance(pieces, list) and 0 <= index < len(pieces):
            if isinstance(pieces[index], str):
                found[variable] = pieces[index]
    return found


def _read_config(path: Path) -> dict[str, Any]:
    source = shown_path(path)
    config = parse_json(read_text(path), source)
    if not isinstance(config, dict):
        raise InputError(f"{source}: is not a JSON object")
    return config


def _config_templates(value: object, source: str) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": _text(value, f"{source}: chat_template")}
    if not isinstance(value, list):
        raise InputError(f"{source}: chat_template is {quote(value)}, not a text or a list of templates")
    found = {}
    for index, entry in enumerate(value):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str):
            raise InputError(f'{source}: chat_template[{index}] is not {{"name": …, "template": …}}')
        found[name] = _text(entry.get("template"), f"{source}: chat_template[{index}].template")
    return found


def _token_text(value: object) -> str | None:
    """A special token as tokenizer_config.json writes it: a text, or an object with its `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} is {quote(value)}, not a text")
    return value
