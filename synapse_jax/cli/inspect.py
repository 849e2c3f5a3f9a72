"""`synapse inspect`."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.errors import InputError
from synapse_jax.evals.record import build_record
from synapse_jax.io.catalog import resolve_model
from synapse_jax.io.file_digest import file_sha256
from synapse_jax.io.model_file import ModelFile
from synapse_jax.io.quoting import quote
from synapse_jax.io.safetensors import SafetensorsFile, open_safetensors
from synapse_jax.io.safetensors_header import READABLE

_LONGEST_ARRAY = 8
_LONGEST_TEXT = 100


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Prints what a model file says; starts no device. A file that cannot be run still shows its header."""
    with optional_file(values.output) as output:
        if values.model.endswith(".safetensors"):
            record = _safetensors_record(resolve_model(values.model))
        else:
            with open_model(values, weights=False) as model:
                record = build_record("inspect", result=describe(model), model=model)
        save(output, record)
    show(values, record, _table(record["result"]))
    return 0


def describe(model: ModelFile) -> dict[str, Any]:
    """Spec, tensors, metadata and problems of a GGUF file or a Hugging Face folder."""
    problems: list[str] = []
    spec = tokenizer = None
    try:
        spec = dataclasses.asdict(model.spec)
        problems += [f"warning: {line}" for line in model.warnings]
    except InputError as error:
        problems.append(f"error: {error}")
    try:
        built = model.tokenizer
        tokenizer = {
            "vocab_size": built.vocab_size,
            "add_bos": built.add_bos,
            "bos_id": built.bos_id,
            "eos_id": built.eos_id,
            "stop_ids": sorted(built.stop_ids),
        }
        problems += [f"warning: {line}" for line in built.warnings]
    except InputError as error:
        problems.append(f"error: {error}")
    tensors = model.tensors.values()
    return {
        "format": model.format,
        "gguf_version": None if model.gguf is None else model.gguf.version,
        "spec": spec,
        "tokenizer": tokenizer,
        "tensors": len(tensors),
        "tensor_bytes": sum(tensor.nbytes for tensor in tensors),
        "types": _counted(tensor.type_name for tensor in tensors),
        "shapes": None,
        "metadata": {key: _shown(value) for key, value in model.metadata.items()},
        "problems": problems,
    }


def describe_safetensors(file: SafetensorsFile) -> dict[str, Any]:
    """Tensors, metadata and problems of a safetensors file, in the fields of `describe`.

    Such a file names neither architecture nor vocabulary: both are null, and `shapes` lists its tensors.
    """
    tensors = file.tensors.values()
    types = _counted(tensor.dtype for tensor in tensors)
    return {
        "format": "safetensors",
        "gguf_version": None,
        "spec": None,
        "tokenizer": None,
        "tensors": len(tensors),
        "tensor_bytes": sum(tensor.nbytes for tensor in tensors),
        "types": types,
        "shapes": {name: [tensor.dtype, *tensor.shape] for name, tensor in file.tensors.items()},
        "metadata": file.metadata,
        "problems": [
            f"warning: tensors of dtype {dtype} cannot be read as float32: {count}, first "
            + quote(next(name for name, tensor in file.tensors.items() if tensor.dtype == dtype))
            for dtype, count in types.items()
            if dtype not in READABLE
        ],
    }


def _safetensors_record(path: Path) -> dict[str, Any]:
    with open_safetensors(path) as file:
        result = describe_safetensors(file)
    model = {"name": path.stem, "path": str(path), "sha256": file_sha256(path), "arch": None}
    return {**build_record("inspect", result=result), "model": model}


def _counted(types: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(types).items()))


def _shown(value: Any) -> Any:
    """A metadata value as JSON; long arrays by their length and first entries, bytes by their repr."""
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, list | np.ndarray):
        first = [_shown(item) for item in value[:_LONGEST_ARRAY]]
        return first if len(value) <= _LONGEST_ARRAY else {"length": len(value), "first": first}
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _table(result: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [(key, str(value)) for key, value in (result["spec"] or {}).items()]
    rows += [(key, str(value)) for key, value in (result["tokenizer"] or {}).items() if key != "vocab_size"]
    types = ", ".join(f"{name} ({count})" for name, count in result["types"].items())
    rows += [
        ("format", result["format"]),
        ("tensors", f"{result['tensors']}, {result['tensor_bytes']} bytes: {types}"),
    ]
    rows += [(_one_line(key), _one_line(value)) for key, value in result["metadata"].items()]
    rows += [
        (_one_line(name), f"{kind} {shape}") for name, (kind, *shape) in (result["shapes"] or {}).items()
    ]
    return rows + ([("problem", line) for line in result["problems"]] or [("problems", "none")])


def _one_line(value: Any) -> str:
    """A key or a value of a file as one short line, whatever is in it."""
    if isinstance(value, dict) and value.keys() == {"length", "first"}:
        value = f"{value['length']} values"
    shown = str(value)
    text = shown[: 2 * _LONGEST_TEXT].encode("unicode_escape").decode()
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(shown)} characters)"
