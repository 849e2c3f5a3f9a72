"""`synapse models`."""

from __future__ import annotations

from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import DOWNLOAD_BAR, say
from synapse_jax.errors import InputError
from synapse_jax.evals.record import build_record
from synapse_jax.io.catalog import CATALOG, CatalogEntry, entry_path, is_here, resolve_model


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    flags.DEFINE_string(
        "fetch", None, "A name: fetch this model now, and list only this one.", flag_values=values
    )
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Lists the named models; fetches one if asked to."""
    names = list(CATALOG) if values.fetch is None else [values.fetch]
    if values.fetch is not None and values.fetch not in CATALOG:
        raise InputError(f"--fetch {values.fetch!r}: there is no model of this name; {', '.join(CATALOG)}")
    with optional_file(values.output) as output:
        if values.fetch is not None:
            resolve_model(values.fetch, log=say(values.progress), bar=DOWNLOAD_BAR[values.progress])
        result = {"models": [_describe(CATALOG[name]) for name in names]}
        record = build_record("models", result=result)
        save(output, record)
    table: list[tuple[str, str]] = []
    for model in result["models"]:
        shown = {**model, "path": model["path"] or "not fetched yet"}
        rows = [(key, str(value)) for key, value in shown.items() if value is not None]
        table += ([("", "")] if table else []) + rows
    show(values, record, table)
    return 0


def _describe(entry: CatalogEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "description": entry.description,
        "licence": entry.licence,
        "terms": entry.terms,
        "bytes": entry.file.size,
        "sha256": entry.file.sha256,
        "path": str(entry_path(entry)) if is_here(entry) else None,
    }
