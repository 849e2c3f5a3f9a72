"""Checkpoints of a copy probe: a line for every block and depth."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.evals.checkpoint_file import CheckpointFile
from synapse_jax.evals.probe import Trial
from synapse_jax.evals.probe_plan import Plant
from synapse_jax.evals.probe_result import trial_fields


class ProbeCheckpoint(CheckpointFile):
    """A checkpoint whose lines are trials; file, identity and errors are those of `CheckpointFile`.

    Args:
        path: the file.
        identity: what the figures depend on, as nested objects of JSON values.
        plants: what is measured, in order.
        resume: whether the file may be there already.

    Raises:
        InputError: the file cannot be used, is there without `resume`, or is of another run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        identity: Mapping[str, Any],
        plants: Sequence[Plant],
        *,
        resume: bool,
    ):
        self._plants = plants
        self.trials: list[Trial] = []
        """Trials that are done, in the order of the plants."""
        super().__init__(path, identity, resume=resume)

    def add_trial(self, trial: Trial) -> None:
        """Puts a trial on the disk.

        Raises:
            RunError: it cannot be written.
        """
        self.append(trial_fields(trial))
        self.trials.append(trial)

    def read_line(self, value: dict[str, Any]) -> None:
        """Takes in a trial."""
        needle, decoy, recalled, unseen = (
            tuple(value[name]) for name in ("needle", "decoy", "recalled", "unseen")
        )
        plant, index = Plant(value["block"], value["depth"], needle, decoy), len(self.trials)
        if index >= len(self._plants) or plant != self._plants[index]:
            raise InputError(
                f"{self.shown}: trial {index}, block {plant.block} at depth {plant.depth}, is not of this run"
            )
        if not all(len(nll) == len(plant.needle) for nll in (recalled, unseen)):
            raise ValueError("an NLL is missing")
        self.trials.append(Trial(plant, recalled, unseen))
