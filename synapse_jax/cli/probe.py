"""`synapse probe`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.checkpoints import begin, check_checkpoint, define_checkpoint, run_identity
from synapse_jax.cli.inputs import SOURCES, Tokens, open_model, read_input
from synapse_jax.cli.output import check_files_differ, optional_file, save, show
from synapse_jax.cli.progress import Progress, warn
from synapse_jax.cli.sessions import kv_memory, open_session, timed
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.evals.probe import Trial, probe_entries, run_trials, scoring_rows
from synapse_jax.evals.probe_checkpoint import ProbeCheckpoint
from synapse_jax.evals.probe_plan import ProbePlan, draw_plants, parse_depths, plantable_ids
from synapse_jax.evals.probe_result import NOTE, summarize
from synapse_jax.io.model_file import ModelFile
from synapse_jax.spec.digest import sha256_tokens
from synapse_jax.spec.runtime import RuntimeProfile, resolve

ENOUGH_BLOCKS = 16
"""Blocks from which on an interval says something."""


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    shared.define_text(values)
    shared.define_runtime(values, context=None)
    flags.DEFINE_integer("length", 512, "Tokens a block, at least 16.", flag_values=values)
    flags.DEFINE_integer(
        "blocks",
        ENOUGH_BLOCKS,
        "Blocks of text, one after the other; use text that the model was not trained on.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "depths",
        "auto",
        "Token indices that needles are planted at, as in 0,128,256, or auto for an even sweep.",
        flag_values=values,
    )
    flags.DEFINE_integer("seed", 0, "Seed of needles and decoys.", flag_values=values)
    flags.DEFINE_string(
        "plot", None, "Write a plot of gain by depth: .png, .svg or .pdf.", flag_values=values
    )
    define_checkpoint(values, "Put every block and depth into this file as they come.")
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Probes the model and prints the gain by depth."""
    source = shared.choose_one(values, SOURCES)
    check_checkpoint(values)
    check_files_differ(values, ("output", "plot", "checkpoint"))
    plan = ProbePlan(values.length, values.blocks, parse_depths(values.depths, values.length), values.seed)
    profile = shared.profile_from(values)
    if values.plot is not None:
        from synapse_jax.evals.plots import check_plot  # says at once if there is no library for it

        check_plot(values.plot)
    with optional_file(values.output) as output, open_model(values) as model:
        context = resolve(profile, model.spec).context
        assert context is not None
        if plan.length > context:
            raise InputError(f"length {plan.length} is above the context of {context}")
        tokens = read_input(values, source, model, drop_newline=source == "text_file")
        work = _Work(values, model, profile, plan, tokens)
        with work.checkpoint() as checkpoint:
            record = work.run(checkpoint)
        save(output, record)
    show(values, record, _table(record))
    if values.plot is not None:
        from synapse_jax.evals.probe_plot import plot_probes

        plot_probes({f"{model.name}, {record['runtime']['attention']}": record}, values.plot)
    return 0


class _Work:
    """What is to be probed, checked before anything is compiled."""

    def __init__(
        self,
        values: flags.FlagValues,
        model: ModelFile,
        profile: RuntimeProfile,
        plan: ProbePlan,
        tokens: Tokens,
    ):
        self._values, self._model, self._profile, self._plan = values, model, profile, plan
        self._tokens, tokenizer = tokens, model.tokenizer
        self._policy = resolve(profile, model.spec).policy
        self._bos_id = tokenizer.bos_id if tokenizer.add_bos else None
        self._blocks = plan.cut(tokens.ids, self._bos_id)
        self._plantable = plantable_ids(tokenizer.vocabulary)
        self._plants = draw_plants(plan, self._plantable)

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[ProbeCheckpoint | None]:
        """The checkpoint that the flags ask for; one of another run is refused."""
        path, resume = self._values.checkpoint, self._values.resume
        if path is None:
            yield None
            return
        checkpoint = ProbeCheckpoint(path, self._identity(), self._plants, resume=resume)
        with checkpoint:
            yield checkpoint

    def run(self, checkpoint: ProbeCheckpoint | None) -> dict[str, Any]:
        """Measures every plant; returns the record."""
        values, plan = self._values, self._plan
        if plan.blocks < ENOUGH_BLOCKS:
            warn(f"{plan.blocks} blocks are few: an interval of the gain wants at least {ENOUGH_BLOCKS}")
        if self._bos_id is not None and plan.measured[0] == 0:
            warn(f"a needle at depth 0 takes the place of the block's BOS, token {self._bos_id}")
        entries = probe_entries(plan, self._policy)
        session = open_session(values, self._model, self._profile, entries, plan.length - 1)
        done = [] if checkpoint is None else list(checkpoint.done)
        if checkpoint is not None:
            begin(checkpoint, session, values, len(done), len(self._plants), "trials")

        def measure() -> list[Trial]:
            trials = list(done)
            progress = Progress(values.progress, "probe", "positions", lambda: kv_memory(session))
            found = run_trials(session, self._blocks, plan, self._plants, done=len(done), progress=progress)
            for trial in found:
                if checkpoint is not None:
                    checkpoint.add(trial)
                trials.append(trial)
            return trials

        trials, seconds = timed(measure, session)
        new = trials[len(done) :]
        evaluated = 2 * plan.length * len(new) - sum(trial.reused_tokens for trial in new)
        return records.build_record(
            "probe",
            arguments=shared.given_arguments(values),
            result={
                **summarize(plan, trials, self._model.spec, self._policy),
                "plantable_ids": len(self._plantable),
                "blocks_sha256": sha256_tokens(self._blocks.reshape(-1)),
                "bos_at_block_starts": self._bos_id is not None,
                "dropped_trailing_newline": self._tokens.dropped_newline,
                "step_rows": scoring_rows(plan, self._policy),
            },
            model=self._model,
            session=session,
            ids=self._tokens.ids,
            evaluated=self._sequences(),
            timings=records.Timings(session.load_s, session.compile_s, seconds, evaluated, len(done)),
        )

    def _sequences(self) -> np.ndarray:
        """Every sequence that is evaluated, in order: planted, then control, of each plant."""
        pairs = ((p.planted(b), p.control(b)) for p in self._plants for b in [self._blocks[p.block]])
        return np.concatenate([ids for pair in pairs for ids in pair])

    def _identity(self) -> dict[str, Any]:
        """What the NLLs depend on, but for the compiled graphs."""
        return {
            "command": "probe",
            **run_identity(self._model, self._profile, self._tokens.ids, self._sequences()),
            "plan": dataclasses.asdict(self._plan),
            "step_rows": scoring_rows(self._plan, self._policy),
        }


def _table(record: dict[str, Any]) -> list[tuple[str, str]]:
    result, speed = record["result"], record["timings"]["tokens_per_second"]
    rows = [("copy probe", NOTE)]
    rows += [(f"depth {at['depth']}", _depth(at)) for at in result["depths"]]
    if result["skipped_depths"]:
        skipped = ", ".join(map(str, result["skipped_depths"]))
        rows.append(("skipped depths", f"{skipped}: the needle would not end before the copy"))
    if result["reach"] is not None:
        one, stacked = result["reach"]["one_layer"], result["reach"]["stacked"]
        start = result["length"] - 2 * result["needle_tokens"]
        rows.append((
            "reach",
            f"{one} tokens in one layer, depths from {start - one}; {stacked} through all, from "
            f"{start - stacked}",
        ))  # fmt: skip
    return [
        *rows,
        ("text", f"{_blocks(result)} (sha256 {result['blocks_sha256'][:16]}…), seed {result['seed']}"),
        ("model", f"{record['model']['name']} ({record['model']['arch']}), {record['runtime']['precision']}"),
        ("attention", record["runtime"]["attention"]),
        ("speed", "none" if speed is None else f"{speed:.1f} tokens/s"),
        ("profile", record["fingerprints"]["profile"]),
    ]


def _depth(at: dict[str, Any]) -> str:
    return (
        f"gain {_interval(at['gain'])} nats a token, {_interval(at['gain_without_first'])} without the first"
        f"; NLL recalled {at['needle_nll_recalled']:.3f}, unseen {at['needle_nll_unseen']:.3f}"
    )


def _blocks(result: dict[str, Any]) -> str:
    count = result["blocks"]
    return f"{count} block{'s' if count > 1 else ''} of {result['length']} tokens"


def _interval(found: dict[str, float | None]) -> str:
    """A mean with its interval, where there is one."""
    if found["low"] is None:
        return f"{found['mean']:+.3f}"
    return f"{found['mean']:+.3f} ({found['low']:+.3f} … {found['high']:+.3f})"
