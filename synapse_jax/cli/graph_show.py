"""`synapse graph show`."""

from __future__ import annotations

from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.entries import define_entry, one_entry
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    define_entry(values, "step", "by default 512 rows of step, 32 of logits, and the first capacity")
    flags.DEFINE_bool(
        "stablehlo", False, "Print the module's StableHLO text and nothing else.", flag_values=values
    )
    flags.DEFINE_bool(
        "hlo", False, "Print the optimized module's HLO text and nothing else.", flag_values=values
    )
    flags.DEFINE_bool(
        "compile",
        True,
        "Compile the entry for what only that tells: its memory, and its cost after fusion.",
        flag_values=values,
    )
    shared.define_runtime(values, context=None)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Prints the IR, the profile, the arguments and the cost of one entry; reads no weights."""
    profile = shared.profile_from(values)
    with optional_file(values.output) as output, open_model(values) as model:
        from synapse_jax.evals.record import build_record
        from synapse_jax.graph.compile import GRAPHS, lower_on
        from synapse_jax.graph.cost import compiled_account, cost_table
        from synapse_jax.graph.describe import describe
        from synapse_jax.ir.build import build
        from synapse_jax.runtime.devices import find_device
        from synapse_jax.spec.runtime import resolve

        device = find_device(profile.device)
        ir = build(model.spec, resolve(profile, model.spec))
        entry = one_entry(values, ir, "graph show")
        lowered = lower_on(ir, entry, device)
        needs_compile = values.hlo or (values.compile and not values.stablehlo)
        compiled = GRAPHS.compile(ir, entry, device) if needs_compile else None
        result = {
            **describe(ir, lowered),
            "cost": cost_table(ir, lowered),
            "compiled": None if compiled is None else compiled_account(compiled),
            "stablehlo": lowered.stablehlo if values.stablehlo else None,
            "hlo": compiled.function.as_text() if compiled is not None and values.hlo else None,  # type: ignore[attr-defined]
        }
        record = build_record("graph show", result=result, model=model, profile=ir.profile, device=device)
        digests = {
            "program": lowered.program.digest,
            "executable": None if compiled is None else compiled.executable.digest,
        }
        profile_digest = result["identities"]["profile"]["digest"]
        record["fingerprints"] = {"profile": profile_digest, "entries": [{**entry.summary(), **digests}]}
        save(output, record)
    show(values, record, [])
    if not values.json:
        print(_modules(result) or _text(result), end="")
    return 0


def _modules(result: dict[str, Any]) -> str:
    """The texts of modules that were asked for."""
    return "".join(f"{result[name].rstrip()}\n" for name in ("stablehlo", "hlo") if result[name] is not None)


def _text(result: dict[str, Any]) -> str:
    from synapse_jax.graph.describe import argument_lines

    entry = result["entry"]
    lines = [f"entry {entry['entry']} rows={entry['rows']} capacity={entry['capacity']}"]
    lines += result["profile_text"].splitlines()
    lines += [
        f"rope table={table['table']} sha256 {table['sha256']} of {table['positions']} positions"
        for table in result["rope_tables"]
    ]
    lines += [*result["ir"].splitlines(), "arguments:"]
    lines += [f"  {line}" for line in argument_lines(result["arguments"])]
    for kind in ("profile", "program"):
        identity = result["identities"][kind]
        lines += [f"{kind} {identity['digest']}"]
        lines += [f"  {name:<10} {digest}" for name, digest in identity["parts"].items()]
    return "\n".join(lines + _cost_lines(result)) + "\n"


def _cost_lines(result: dict[str, Any]) -> list[str]:
    lines = [
        "cost before fusion, a loop's body counted once (one page of attention, one token of decode, one "
        "block of scored rows):",
        f"  {'part':<24} {'count':>5} {'MFLOP':>11} {'transc. M':>10} {'MB moved':>10} {'weights MB':>10} "
        f"{'KV MB':>8}",
    ]
    for row in result["cost"]:
        figures = [
            row[name] / 1e6 for name in ("flops", "transcendentals", "bytes", "weight_bytes", "cache_bytes")
        ]
        mflop, transcendental, moved, weights, cache = figures
        lines.append(
            f"  {row['part']:<24} {row['count']:>5} {mflop:>11.3f} {transcendental:>10.4f} {moved:>10.3f} "
            f"{weights:>10.3f} {cache:>8.3f}"
        )
    if result["compiled"] is not None:
        lines.append("compiled:")
        lines += [
            f"  {name:<16} {'not told' if value is None else f'{value:,.0f}'}"
            for name, value in result["compiled"].items()
        ]
    return lines
