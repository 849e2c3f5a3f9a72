"""What a graph is, as plain data: for people, for records and for the manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jax

from synapse_jax.graph.compile import PAGES_ARGUMENT, LoweredEntry
from synapse_jax.graph.entry import Entry, abstract_arguments
from synapse_jax.graph.fingerprint import Identity, profile_identity
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.ir.text import ir_text, profile_text
from synapse_jax.spec.rope_table import table_sha256

ARGUMENTS = ("params", "pages", "batch")

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|(?<=\[)\d+(?=\])")
"""The layer of a weight, or the place in a tuple, within an argument's name."""


def describe(ir: ModelIR, lowered: LoweredEntry) -> dict[str, Any]:
    """IR, profile, RoPE tables, arguments and identities of an entry."""
    limit = ir.context_limit
    return {
        "entry": lowered.entry.summary(),
        "profile_text": profile_text(ir),
        "rope_tables": [
            {"table": index, "positions": limit, "sha256": table_sha256(rope, limit)}
            for index, rope in enumerate(ir.rope_tables)
        ],
        "attention": ir.profile.attention,
        "ir": ir_text(ir),
        "arguments": argument_list(ir, lowered.entry),
        "identities": {
            "profile": identity_summary(profile_identity(ir)),
            "program": identity_summary(lowered.program),
        },
    }


def argument_list(ir: ModelIR, entry: Entry) -> list[dict[str, Any]]:
    """Every array argument of an entry, in order: name, dtype, shape, whether it is donated."""
    found = []
    for index, (name, tree) in enumerate(zip(ARGUMENTS, abstract_arguments(ir, entry), strict=True)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            found.append(
                {
                    "name": name + jax.tree_util.keystr(path),
                    "dtype": str(leaf.dtype),
                    "shape": list(leaf.shape),
                    "donated": index == PAGES_ARGUMENT,
                }
            )
    return found


def argument_lines(arguments: Iterable[dict[str, Any]]) -> list[str]:
    """The arguments as text; those that differ in their layer or place alone share a line."""
    groups: dict[tuple[str, str], list[int]] = {}
    for argument in arguments:
        name = argument["name"]
        what = f"{argument['dtype']}{argument['shape']}{' donated' if argument['donated'] else ''}"
        number = _NUMBER.search(name)
        if number is None:
            groups[name, what] = []
        else:
            pattern = f"{name[: number.start()]}\0{name[number.end() :]}"
            groups.setdefault((pattern, what), []).append(int(number[0]))
    return [
        f"{name.replace(chr(0), ranges(numbers))} {what}" if numbers else f"{name} {what}"
        for (name, what), numbers in groups.items()
    ]


def ranges(numbers: Iterable[int]) -> str:
    """Distinct numbers in order as `0…4,6…10,12`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}…{last}" for first, last in runs)


def identity_summary(identity: Identity) -> dict[str, Any]:
    """The part of a record that holds an identity with its parts."""
    return {"digest": identity.digest, "parts": dict(identity.parts)}
