"""Checkpoints of a quality run: a line for every case."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.evals.checkpoint_file import CheckpointFile
from synapse_jax.evals.quality import CaseResult
from synapse_jax.evals.quality_result import case_fields, read_case
from synapse_jax.evals.tasks.case import Case


class QualityCheckpoint(CheckpointFile):
    """A checkpoint whose lines are cases; file, identity and errors are those of `CheckpointFile`.

    Args:
        path: the file.
        identity: what the answers depend on, as nested objects of JSON values.
        cases: what is asked, in order.
        resume: whether the file may be there already.

    Raises:
        InputError: the file cannot be used, is there without `resume`, or is of another run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        identity: Mapping[str, Any],
        cases: Sequence[Case],
        *,
        resume: bool,
    ):
        self._cases = cases
        self.results: list[CaseResult] = []
        """Cases that are done, in order."""
        super().__init__(path, identity, resume=resume)

    def add(self, result: CaseResult) -> None:
        """Puts a case on the disk.

        Raises:
            RunError: it cannot be written.
        """
        self.append(case_fields(result))
        self.results.append(result)

    def read_line(self, value: dict[str, Any]) -> None:
        """Takes in a case."""
        index = len(self.results)
        if index >= len(self._cases) or value["prompt_sha256"] != self._cases[index].sha256:
            raise InputError(f"{self.shown}: case {index} is not of this run")
        self.results.append(read_case(value, self._cases[index]))
