"""What a graph is, as plain data: for people, for records and for the manifest."""

from __future__ import annotations

from typing import Any

import jax

from synapse_jax.graph.compile import PAGES_ARGUMENT, LoweredEntry
from synapse_jax.graph.entry import Entry, abstract_arguments
from synapse_jax.graph.fingerprint import Identity, profile_identity
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.ir.text import ir_text, profile_text

ARGUMENTS = ("params", "pages", "batch")


def describe(ir: ModelIR, lowered: LoweredEntry) -> dict[str, Any]:
    """IR, profile, arguments and identities of an entry."""
    return {
        "entry": lowered.entry.summary(),
        "profile_text": profile_text(ir),
        "ir": ir_text(ir),
        "arguments": argument_list(ir, lowered.entry),
        "identities": {"profile": _identity(profile_identity(ir)), "program": _identity(lowered.program)},
    }


def argument_list(ir: ModelIR, entry: Entry) -> list[dict[str, Any]]:
    """Every array argument of an entry: name, dtype, shape, whether it is donated."""
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


def _identity(identity: Identity) -> dict[str, Any]:
    return {"digest": identity.digest, "parts": dict(identity.parts)}
