"""`synapse graph precompile`."""

from __future__ import annotations

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import say
from synapse_jax.dims import capacity_rung
from synapse_jax.errors import InputError
from synapse_jax.io.quoting import quote
from synapse_jax.spec.runtime import RuntimeProfile

READY = "step:32,step:512,decode"
"""What a session compiles at load."""


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    shared.define_runtime(values, context=None)
    flags.DEFINE_string(
        "entries",
        READY,
        "Entries, separated by commas, with their rows: step:R or logits:R, R being 32, 64, 128, 256 or 512; "
        "decode, sample and choose have one.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "positions",
        1,
        "Positions to have room for: entries are compiled for every rung of the ladder up to there.",
        lower_bound=1,
        flag_values=values,
    )
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Compiles entries into the cache on disk; reads no weights."""
    profile = shared.profile_from(values)
    with optional_file(values.output) as output, open_model(values) as model:
        from synapse_jax.evals.record import Timings, build_record
        from synapse_jax.graph.entry import entry_for, fitting
        from synapse_jax.graph.fingerprint import profile_identity
        from synapse_jax.graph.store import VARIABLE, graph_folder
        from synapse_jax.ir.build import build
        from synapse_jax.runtime.devices import find_device
        from synapse_jax.runtime.entries import Entries
        from synapse_jax.spec.runtime import resolve

        folder = graph_folder()
        if folder is None:
            raise InputError(f"graph precompile: {VARIABLE} is off, so nothing would be kept")
        device = find_device(profile.device)
        ir = build(model.spec, resolve(profile, model.spec))
        try:
            named = [
                entry_for(ir, name, rows, capacity)
                for name, rows in fitting(ir.profile, [_parse(word) for word in values.entries.split(",")])
                for capacity in _rungs(ir.profile, values.positions)
            ]
        except ValueError as error:
            raise InputError(f"graph precompile: {error}") from None
        entries = Entries(ir, device, named, say(values.progress))
        entries.finish()
        compiled = [entry.summary() for entry in entries.compiled]
        record = build_record(
            "graph precompile",
            arguments=shared.given_arguments(values),
            result={"folder": str(folder), "entries": compiled},
            model=model,
            profile=ir.profile,
            device=device,
            timings=Timings(0.0, entries.compile_s, 0.0, 0),
        )
        record["fingerprints"] = {"profile": profile_identity(ir).digest, "entries": compiled}
        costs = record["timings"]["graphs"] = [entry.cost() for entry in entries.compiled]
        save(output, record)
    table = [
        (
            f"{entry['entry']} {entry['rows']}×{entry['capacity']}",
            f"{entry['cache']}, {entry['compile_s']:.2f} s after {entry['lower_s']:.2f} s of lowering",
        )
        for entry in costs
    ]
    show(values, record, [*table, ("folder", str(folder)), ("compile", f"{entries.compile_s:.2f} s in all")])
    return 0


def _parse(word: str) -> tuple[str, int]:
    """The name and rows of 'step:32' or 'decode'.

    Raises:
        InputError: it is neither.
    """
    name, _, rows = word.strip().partition(":")
    if name in ("decode", "sample", "choose") and not rows:
        return name, 1
    if not rows.isascii() or not rows.isdigit():
        raise InputError(f"--entries: {quote(word)} is no entry with its rows, as in {READY}")
    return name, int(rows)


def _rungs(profile: RuntimeProfile, positions: int) -> list[int]:
    """Every capacity from the first rung of the ladder to the one that holds `positions`.

    Raises:
        InputError: more positions than the context has.
    """
    context = profile.context
    assert context is not None
    if positions > context:
        raise InputError(f"--positions {positions} is above the context of {context}")
    rungs = [capacity_rung(1, context, profile.page_size)]
    while rungs[-1] < positions:
        rungs.append(capacity_rung(rungs[-1] + 1, context, profile.page_size))
    return rungs
