"""Checkpoints of a copy probe: a line for every block and depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.evals.planned_checkpoint import PlannedCheckpoint
from synapse_jax.evals.probe import Trial
from synapse_jax.evals.probe_plan import Plant
from synapse_jax.evals.probe_result import trial_fields


class ProbeCheckpoint(PlannedCheckpoint[Plant, Trial]):
    """A checkpoint whose lines are trials, in the order of the plants."""

    def fields(self, done: Trial) -> Mapping[str, Any]:
        """A trial as JSON values."""
        return trial_fields(done)

    def read(self, value: dict[str, Any], index: int, planned: Plant | None) -> Trial:
        """A trial from its JSON values."""
        needle, decoy, recalled, unseen = (
            tuple(value[name]) for name in ("needle", "decoy", "recalled", "unseen")
        )
        plant = Plant(value["block"], value["depth"], needle, decoy)
        if plant != planned:
            raise InputError(
                f"{self.shown}: trial {index}, block {plant.block} at depth {plant.depth}, is not of this run"
            )
        if not all(len(nll) == len(plant.needle) for nll in (recalled, unseen)):
            raise ValueError("an NLL is missing")
        return Trial(plant, recalled, unseen)
