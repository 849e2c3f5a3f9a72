"""`synapse graph list`."""

from __future__ import annotations

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    shared.define_runtime(values, context=None)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Lists the entries that are ready at load, with their identities; reads no weights."""
    profile = shared.profile_from(values)
    with optional_file(values.output) as output, open_model(values) as model:
        from synapse_jax.evals.record import build_record
        from synapse_jax.graph.compile import GRAPHS, lower_on
        from synapse_jax.graph.entry import READY, entry_for, fitting
        from synapse_jax.graph.fingerprint import executable_identity, profile_identity
        from synapse_jax.ir.build import build
        from synapse_jax.runtime.devices import find_device
        from synapse_jax.spec.runtime import resolve

        device = find_device(profile.device)
        ir = build(model.spec, resolve(profile, model.spec))
        entries = []
        for name, rows in fitting(ir.profile, READY):
            entry = entry_for(ir, name, rows)
            program = lower_on(ir, entry, device).program
            executable = executable_identity(program, device)
            digests = {"program": program.digest, "executable": executable.digest}
            parts = {"parts": dict(executable.parts)}
            compiled = GRAPHS.holds(executable, device)
            entries.append({**entry.summary(), **digests, **parts, "compiled": compiled})
        record = build_record(
            "graph list", result={"entries": entries}, model=model, profile=ir.profile, device=device
        )
        record["fingerprints"] = {"profile": profile_identity(ir).digest, "entries": entries}
        table = [("profile", record["fingerprints"]["profile"])]
        table += [
            (
                f"{entry['entry']} {entry['rows']}×{entry['capacity']}",
                f"program {entry['program']} executable {entry['executable'][:16]}…",
            )
            for entry in entries
        ]
        save(output, record)
    show(values, record, table)
    return 0
