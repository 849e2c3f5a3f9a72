"""Running again what a record says was run."""

from __future__ import annotations

from typing import Any

from absl import flags

from synapse_jax.cli.inputs import SOURCES
from synapse_jax.errors import InputError
from synapse_jax.evals.record import SCHEMA
from synapse_jax.io.json_text import parse_json
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import read_text


def read_score_record(path: str) -> dict[str, Any]:
    """A record of `score` that tells its arguments.

    Raises:
        InputError: the file cannot be read or is something else.
    """
    record = parse_json(read_text(path), shown_path(path))
    try:
        result, entries = record["result"], record["fingerprints"]["entries"]
        is_ours = (
            (record["schema"], record["command"]) == (SCHEMA, "score")
            and isinstance(record["arguments"], dict)
            and all("parts" in entry for entry in entries)
            and all("nll_sum" in chunk for chunk in result["chunks"])
            and all(isinstance(record[name], dict) for name in ("model", "runtime", "tokens", "versions"))
        )
    except (KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise InputError(f"{shown_path(path)}: is not a record of synapse score that can be run again")
    return record


def fill_in(values: flags.FlagValues, arguments: dict[str, Any], source: str) -> None:
    """Gives flags that are not given the values of a record; a source that is given replaces the record's.

    Args:
        values: the flags of `score`.
        arguments: of the record.
        source: the record, for messages.

    Raises:
        InputError: an argument that is no flag, or a value that it does not take.
    """
    has_source = any(values[name].present for name in SOURCES)
    for name, value in arguments.items():
        if name not in values:
            raise InputError(f"{shown_path(source)}: there is no flag --{name.replace('_', '-')}")
        if values[name].present or (has_source and name in SOURCES):
            continue
        try:
            values[name].parse(value if isinstance(value, bool) else str(value))
        except flags.Error as error:
            raise InputError(f"{shown_path(source)}: {error}") from None
        values[name].present += 1
