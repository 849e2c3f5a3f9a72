"""`synapse inspect`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.errors import InputError
from synapse_jax.evals.record import build_record
from synapse_jax.io.model_file import ModelFile

_LONGEST_ARRAY = 8


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Prints what a model file says; starts no device. A file that cannot be run still shows its header."""
    with optional_file(values.output) as output, open_model(values, weights=False) as model:
        result = describe(model)
        record = build_record("inspect", result=result, model=model)
        save(output, record)
    show(values, record, _table(result))
    return 0


def describe(model: ModelFile) -> dict[str, Any]:
    """Spec, tensors, metadata and problems of a file."""
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
    tensors = model.gguf.tensors
    return {
        "gguf_version": model.gguf.version,
        "spec": spec,
        "tokenizer": tokenizer,
        "tensors": len(tensors),
        "tensor_bytes": sum(tensor.nbytes for tensor in tensors.values()),
        "types": dict(sorted(Counter(tensor.type_name for tensor in tensors.values()).items())),
        "metadata": {key: _shown(value) for key, value in model.gguf.metadata.items()},
        "problems": problems,
    }


def _shown(value: Any) -> Any:
    """A metadata value as JSON; long arrays by their length and first entries, bytes by their repr."""
    if isinstance(value, bytes):
        return repr(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        first = [_shown(item) for item in value[:_LONGEST_ARRAY]]
        return first if len(value) <= _LONGEST_ARRAY else {"length": len(value), "first": first}
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return repr(value)
    return value


def _table(result: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [(key, str(value)) for key, value in (result["spec"] or {}).items()]
    rows += [(key, str(value)) for key, value in (result["tokenizer"] or {}).items() if key != "vocab_size"]
    types = ", ".join(f"{name} ({count})" for name, count in result["types"].items())
    rows += [
        ("gguf_version", str(result["gguf_version"])),
        ("tensors", f"{result['tensors']}, {result['tensor_bytes']} bytes: {types}"),
    ]
    rows += [(key, _one_line(value)) for key, value in result["metadata"].items()]
    return rows + ([("problem", line) for line in result["problems"]] or [("problems", "none")])


def _one_line(value: Any) -> str:
    if isinstance(value, dict):
        value = f"{value['length']} values"
    text = str(value).encode("unicode_escape").decode()
    return text if len(text) <= 100 else f"{text[:100]}… ({len(text)} characters)"
