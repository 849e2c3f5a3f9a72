"""`synapse graph list`."""

from __future__ import annotations

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.entries import chosen_entries, define_entry
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    define_entry(values, None, "without one of these flags, what is ready at load")
    flags.DEFINE_bool(
        "all", False, "Every entry that a session may compile: each of some 0.3 s.", flag_values=values
    )
    shared.define_runtime(values, context=None)
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Lists entries × rows × capacity with their identities; reads no weights and compiles nothing."""
    profile = shared.profile_from(values)
    with optional_file(values.output) as output, open_model(values) as model:
        from synapse_jax.evals.record import build_record
        from synapse_jax.graph.compile import GRAPHS, lower_on
        from synapse_jax.graph.entry import READY
        from synapse_jax.graph.fingerprint import executable_identity, profile_identity
        from synapse_jax.ir.build import build
        from synapse_jax.runtime.devices import find_device
        from synapse_jax.spec.runtime import resolve

        device = find_device(profile.device)
        ir = build(model.spec, resolve(profile, model.spec))
        chosen = chosen_entries(values, ir, "graph list", every=values.all)
        # A few are there at once; nothing is said of them.
        mode = values.progress if len(chosen) > len(READY) else "none"
        entries, progress = [], Progress(mode, "lower", "entries")
        for done, entry in enumerate(chosen):
            progress(done, len(chosen))
            program = lower_on(ir, entry, device).program
            executable = executable_identity(program, device)
            digests = {"program": program.digest, "executable": executable.digest}
            parts = {"parts": dict(executable.parts)}
            there = {
                "compiled": GRAPHS.holds(executable, device),
                "cached": GRAPHS.is_kept(executable, device),
            }
            entries.append({**entry.summary(), **digests, **parts, **there})
        progress(len(chosen), len(chosen))
        record = build_record(
            "graph list", result={"entries": entries}, model=model, profile=ir.profile, device=device
        )
        record["fingerprints"] = {"profile": profile_identity(ir).digest, "entries": entries}
        table = [("profile", record["fingerprints"]["profile"])]
        table += [
            (
                f"{entry['entry']} {entry['rows']}×{entry['capacity']}",
                f"program {entry['program']} executable {entry['executable'][:16]}… {_where(entry)}",
            )
            for entry in entries
        ]
        save(output, record)
    show(values, record, table)
    return 0


def _where(entry: dict) -> str:
    """Whether the graph is there."""
    return "compiled" if entry["compiled"] else "cached" if entry["cached"] else "not compiled"
