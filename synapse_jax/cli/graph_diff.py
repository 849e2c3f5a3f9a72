"""`synapse graph diff A B`."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.graph_sides import GraphSide, define_side, pair
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.errors import InputError

if TYPE_CHECKING:  # bad input is refused before jax starts
    from synapse_jax.graph.difference import Difference

OPERANDS = ("a", "b")
"""Flags that words without a dash fill in, in this order."""


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    for name, what in (("a", "One side"), ("b", "The other")):
        flags.DEFINE_string(
            name,
            None,
            f"{what}: a manifest as FILE or FILE:PROFILE, or changed flags as in 'kv-dtype=bf16'; '' changes "
            "none. Exit code 0: they are equal; 1: they differ.",
            flag_values=values,
        )
    flags.DEFINE_bool(
        "stablehlo", False, "Show the differences of the StableHLO texts too.", flag_values=values
    )
    flags.DEFINE_enum(
        "platform",
        "cpu",
        ["cpu", "cuda", "tpu", "METAL"],
        "What to lower for; the device need not be here.",
        flag_values=values,
    )
    define_side(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Names the parts in which two sides differ, and shows their texts; compiles nothing."""
    for name in OPERANDS:
        if values[name].value is None:
            raise InputError(f"graph diff takes two sides, A and B: {name.upper()} is missing")
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(optional_file(values.output))
        a, b = (GraphSide(values, given, stack) for given in (values.a, values.b))
        found = [difference for names in pair(a, b) for difference in _compare(values, a, b, *names)]
        if a.jax != b.jax:
            from synapse_jax.graph.difference import Difference

            found.insert(0, Difference("jax", f"{a.jax} in A, {b.jax} in B"))

        from synapse_jax.evals.record import build_record

        result = {
            "a": {"given": a.name, "jax": a.jax, "profiles": _digests(a)},
            "b": {"given": b.name, "jax": b.jax, "profiles": _digests(b)},
            "equal": not found,
            "differences": [dataclasses.asdict(difference) for difference in found],
        }
        record = build_record("graph diff", arguments=shared.given_arguments(values), result=result)
        save(output, record)
    equal = f"{sum(len(s['entries']) for s in a.sections.values())} entries are the same"
    table = [(d.where, f"{d.part} {' '.join(d.platforms)}".rstrip()) for d in found]
    show(values, record, table or [("equal", equal)])
    if not values.json:
        for difference in found:
            print("".join(f"{line}\n" for line in difference.lines), end="")
    return 1 if found else 0


def _compare(
    values: flags.FlagValues, a: GraphSide, b: GraphSide, title: str, profile_a: str, profile_b: str
) -> list[Difference]:
    from synapse_jax.graph.difference import Difference, section_differences

    if profile_a not in a.sections or profile_b not in b.sections:
        return [Difference(title, f"only in {'A' if profile_a in a.sections else 'B'}")]
    found = []
    for difference in section_differences(a.sections[profile_a], b.sections[profile_b]):
        if values.stablehlo and values.platform in difference.platforms:
            difference = _with_text(a, b, profile_a, profile_b, difference)
        where = f"{title}: {difference.where}" if title else difference.where
        found.append(dataclasses.replace(difference, where=where))
    return found


def _with_text(
    a: GraphSide, b: GraphSide, profile_a: str, profile_b: str, difference: Difference
) -> Difference:
    """The difference of an entry's modules with that of their texts."""
    from synapse_jax.graph.difference import module_difference

    lines = module_difference(
        a.stablehlo(profile_a, difference.where),
        b.stablehlo(profile_b, difference.where),
        f"{difference.where} StableHLO",
        ("A", "B"),
    )
    return dataclasses.replace(difference, lines=lines)


def _digests(side: GraphSide) -> dict[str, Any]:
    return {name: section["identity"]["digest"] for name, section in side.sections.items()}
