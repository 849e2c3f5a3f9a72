"""All the shapes in which a session may compile a model."""

from __future__ import annotations

from synapse_jax.dims import ROW_LADDER, capacity_rungs, row_bucket
from synapse_jax.graph.entry import Entry
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.kv.kinds import step_rows


def all_entries(ir: ModelIR) -> list[Entry]:
    """Every entry of one sequence, by capacity: names × rows × capacities."""
    profile = ir.profile
    assert profile.context is not None
    most = row_bucket(step_rows(profile))
    ladder = [rows for rows in ROW_LADDER if rows <= most]
    shapes = [("step", rows) for rows in ladder] + [("logits", rows) for rows in (1, *ladder)]
    shapes += [(name, 1) for name in ("decode", "sample", "choose")]
    capacities = capacity_rungs(profile.context, profile.page_size)
    return [Entry(name, rows, capacity) for capacity in capacities for name, rows in shapes]
