"""Checkpoints of a quality run: a line for every case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.evals.planned_checkpoint import PlannedCheckpoint
from synapse_jax.evals.quality import CaseResult
from synapse_jax.evals.quality_result import case_fields, read_case
from synapse_jax.evals.tasks.case import Case


class QualityCheckpoint(PlannedCheckpoint[Case, CaseResult]):
    """A checkpoint whose lines are cases."""

    def fields(self, done: CaseResult) -> Mapping[str, Any]:
        """A case as JSON values."""
        return case_fields(done)

    def read(self, value: dict[str, Any], index: int, planned: Case | None) -> CaseResult:
        """A case from its JSON values."""
        if planned is None or value["prompt_sha256"] != planned.sha256:
            raise InputError(f"{self.shown}: case {index} is not of this run")
        return read_case(value, planned)
