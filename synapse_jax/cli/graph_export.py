"""`synapse graph export FOLDER`."""

from __future__ import annotations

import dataclasses

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.entries import define_entry, one_entry
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.errors import InputError
from synapse_jax.io.quoting import shown_path

OPERANDS = ("folder",)
"""Flags that words without a dash fill in."""
PLATFORMS = ("cpu", "cuda", "rocm", "tpu", "METAL")
"""What jax lowers for without the device."""


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    flags.DEFINE_string("folder", None, "The folder to make: a module and its manifest.", flag_values=values)
    flags.DEFINE_list(
        "platforms",
        ["cpu", "cuda", "tpu"],
        f"What to lower for, of {', '.join(PLATFORMS)}; no device need be here.",
        flag_values=values,
    )
    shared.define_model(values)
    define_entry(values, "step", "by default 512 rows of step, 32 of logits, and the first capacity")
    shared.define_runtime(values, context=None)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Writes one entry as portable StableHLO, lowered with the plain kernels; reads no weights."""
    if values.folder is None:
        raise InputError("graph export needs a folder to make, as in: graph export FOLDER")
    for name in values.platforms or [""]:
        if name not in PLATFORMS:
            raise InputError(f"--platforms: {name!r} is not one of {', '.join(PLATFORMS)}")
    profile = dataclasses.replace(shared.profile_from(values), kernels="xla")
    with optional_file(values.output) as output, open_model(values) as model:
        from synapse_jax.evals.record import build_record
        from synapse_jax.graph.export_folder import write_exported
        from synapse_jax.ir.build import build
        from synapse_jax.spec.runtime import resolve

        ir = build(model.spec, resolve(profile, model.spec))
        entry = one_entry(values, ir, "graph export")
        manifest = write_exported(values.folder, ir, entry, list(dict.fromkeys(values.platforms)))
        identities = manifest["identities"]
        result = {name: manifest[name] for name in ("entry", "module", "versions", "identities")}
        record = build_record(
            "graph export",
            arguments=shared.given_arguments(values),
            result={"folder": str(values.folder), **result},
            model=model,
            profile=ir.profile,
        )
        digests = {"program": identities["program"]["digest"], "executable": None}
        record["fingerprints"] = {
            "profile": identities["profile"]["digest"],
            "entries": [{**entry.summary(), **digests}],
        }
        save(output, record)
    module = manifest["module"]
    table = [
        ("folder", shown_path(values.folder)),
        ("entry", str(entry)),
        (
            "module",
            f"{module['bytes']} bytes for {', '.join(module['platforms'])}, sha256 {module['sha256']}",
        ),
        ("profile", identities["profile"]["digest"]),
        ("program", identities["program"]["digest"]),
    ]
    show(values, record, table)
    return 0
