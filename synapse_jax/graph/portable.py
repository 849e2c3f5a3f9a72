"""Lowering for platforms that are not here: the text of a module needs no device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from synapse_jax.graph.compile import trace
from synapse_jax.graph.entry import Entry
from synapse_jax.ir.nodes import ModelIR

PLATFORMS = ("cpu", "cuda", "tpu", "METAL")
"""Platforms by the names that jax lowers for."""


def stablehlo_for(ir: ModelIR, entry: Entry, platforms: Sequence[str] = PLATFORMS) -> dict[str, str]:
    """The StableHLO text of an entry for each platform, traced once."""
    if not platforms:
        return {}
    traced = trace(ir, entry)
    texts = {}
    for platform in platforms:
        with warnings.catch_warnings():
            # jax donates nothing on METAL, and says so: that is in the text then.
            warnings.filterwarnings("ignore", "Some donated buffers were not usable")
            texts[platform] = traced.lower(lowering_platforms=(platform,)).as_text()
    return texts
