"""`synapse graph show`."""

from __future__ import annotations

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import optional_file, save, show


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    flags.DEFINE_enum(
        "entry",
        "step",
        ["step", "logits", "decode", "sample", "choose"],
        "The entry to show.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "rows",
        None,
        "Rows of a step; by default 512, 32 for logits, and 1 for the rest, which have no other.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "capacity",
        None,
        "Positions in the pool; by default the first rung.",
        lower_bound=1,
        flag_values=values,
    )
    shared.define_runtime(values, context=None)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Prints the IR, the profile and the arguments of one entry; reads no weights."""
    profile = shared.profile_from(values)
    rows = values.rows or {"step": 512, "logits": 32}.get(values.entry, 1)
    with optional_file(values.output) as output, open_model(values) as model:
        from synapse_jax.errors import InputError
        from synapse_jax.evals.record import build_record
        from synapse_jax.graph.compile import lower_on
        from synapse_jax.graph.describe import describe
        from synapse_jax.graph.entry import entry_for
        from synapse_jax.ir.build import build
        from synapse_jax.runtime.devices import find_device
        from synapse_jax.spec.runtime import resolve

        device = find_device(profile.device)
        ir = build(model.spec, resolve(profile, model.spec))
        try:
            entry = entry_for(ir, values.entry, rows, values.capacity)
        except ValueError as error:
            raise InputError(f"graph show: {error}") from None
        result = describe(ir, lower_on(ir, entry, device))
        record = build_record("graph show", result=result, model=model, profile=ir.profile, device=device)
        digests = {"program": result["identities"]["program"]["digest"], "executable": None}
        profile_digest = result["identities"]["profile"]["digest"]
        record["fingerprints"] = {"profile": profile_digest, "entries": [{**entry.summary(), **digests}]}
        save(output, record)
    show(values, record, [])
    if not values.json:
        print(_text(result), end="")
    return 0


def _text(result: dict) -> str:
    parts = [result["profile_text"], result["ir"], "arguments:\n"]
    parts += [
        f"  {line['name']} {line['dtype']}{line['shape']}{' donated' if line['donated'] else ''}\n"
        for line in result["arguments"]
    ]
    for kind in ("profile", "program"):
        identity = result["identities"][kind]
        parts += [f"{kind} {identity['digest']}\n"]
        parts += [f"  {name} {digest}\n" for name, digest in identity["parts"].items()]
    return "".join(parts)
