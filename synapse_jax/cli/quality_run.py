"""The work of `synapse quality`, once its prompts are written."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.checkpoints import begin, run_identity
from synapse_jax.cli.controls import control_fields
from synapse_jax.cli.progress import Progress
from synapse_jax.cli.sessions import kv_memory, open_session, timed
from synapse_jax.evals import record as records
from synapse_jax.evals.controls.control import Control
from synapse_jax.evals.quality import CaseResult, positions, quality_entries, run_cases
from synapse_jax.evals.quality_checkpoint import QualityCheckpoint
from synapse_jax.evals.quality_result import agreement, case_fields, cells
from synapse_jax.evals.tasks.case import Case
from synapse_jax.evals.tasks.filler import Filler
from synapse_jax.evals.tasks.plan import QualityPlan
from synapse_jax.evals.tasks.prompt import PromptWriter
from synapse_jax.io.model_file import ModelFile
from synapse_jax.spec.digest import sha256_text
from synapse_jax.spec.runtime import RuntimeProfile


@dataclasses.dataclass(frozen=True)
class QualityRun:
    """What is asked, of whom, checked before anything is compiled."""

    values: flags.FlagValues
    model: ModelFile
    profile: RuntimeProfile
    plan: QualityPlan
    filler: Filler
    writer: PromptWriter
    cases: Sequence[Case]
    control: Control | None

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[QualityCheckpoint | None]:
        """The checkpoint that the flags ask for; one of another run is refused."""
        path = self.values.checkpoint
        if path is None:
            yield None
            return
        with QualityCheckpoint(path, self._identity(), self.cases, resume=self.values.resume) as checkpoint:
            yield checkpoint

    def run(self, checkpoint: QualityCheckpoint | None) -> dict[str, Any]:
        """Answers every case; returns the record."""
        values, cases = self.values, self.cases
        done = [] if checkpoint is None else list(checkpoint.done)
        room = positions((*cases[len(done) :], cases[-1])[0])
        session = open_session(values, self.model, self.profile, quality_entries(cases), room)
        if checkpoint is not None:
            begin(checkpoint, session, values, len(done), len(cases), "cases")

        def answer() -> list[CaseResult]:
            results = list(done)
            progress = Progress(values.progress, "quality", "positions", lambda: kv_memory(session))
            for result in run_cases(
                session, self.model.tokenizer, cases, self.control, done=len(done), progress=progress
            ):
                if checkpoint is not None:
                    checkpoint.add(result)
                results.append(result)
            return results

        results, _ = timed(answer, session)
        new = results[len(done) :]
        seconds = sum(result.ours.seconds for result in new)
        return records.build_record(
            "quality",
            arguments=shared.given_arguments(values),
            result=self._result(results),
            model=self.model,
            session=session,
            ids=[token for case in cases for token in case.ids],
            evaluated=np.concatenate([_evaluated(result) for result in results]),
            timings=records.Timings(
                session.load_s,
                session.compile_s,
                seconds,
                sum(len(_evaluated(result)) for result in new),
                len(done),
            ),
        )

    def _result(self, results: Sequence[CaseResult]) -> dict[str, Any]:
        return {
            **self._asked(),
            "left_out_sentences": self.filler.left_out,
            "cells": cells(results),
            "agreement": agreement(results),
            "cases": [case_fields(result) for result in results],
        }

    def _asked(self) -> dict[str, Any]:
        """What the prompts follow from, and who answers them beside this engine."""
        plan, haystack, template = self.plan, self.filler.haystack, self.writer.template
        return {
            **dataclasses.asdict(plan),
            "answer_tokens": {task: plan.answer_tokens_of(task) for task in plan.tasks},
            "haystack": {
                "sha256": haystack.sha256,
                "characters": len(haystack.text),
                "files": [{"name": name, "sha256": digest} for name, digest in haystack.files],
            },
            "chat": None
            if template is None
            else {"template_sha256": sha256_text(template.text), "now": self.writer.now.isoformat()},
            "control": control_fields(self.values, self.control),
        }

    def _identity(self) -> dict[str, Any]:
        """What the answers depend on, but for the compiled graphs."""
        ids = [token for case in self.cases for token in case.ids]
        return {
            "command": "quality",
            **run_identity(self.model, self.profile, ids, np.array(ids)),
            "asked": self._asked(),
        }


def _evaluated(result: CaseResult) -> tuple[int, ...]:
    """Tokens that this engine evaluated: the prompt, and the answer but for its newest token."""
    ours = result.ours
    answer = ours.token_ids if ours.stopped else ours.token_ids[:-1]
    return (*result.case.ids, *answer)
