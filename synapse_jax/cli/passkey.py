"""`synapse passkey`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.checkpoints import check_checkpoint, define_checkpoint, run_identity
from synapse_jax.cli.controls import check_control, control_fields, define_control, given_control
from synapse_jax.cli.inputs import open_model
from synapse_jax.cli.output import check_files_differ, optional_file, save, show
from synapse_jax.cli.passkey_process import PasskeyProcess
from synapse_jax.cli.progress import Progress, say
from synapse_jax.evals import record as records
from synapse_jax.evals.controls.control import Control
from synapse_jax.evals.passkey.fixture import Fixture, PasskeyPrompt
from synapse_jax.evals.passkey.form import FORMS
from synapse_jax.evals.passkey.plan import PasskeyPlan
from synapse_jax.evals.passkey.run import PasskeyCheckpoint, evaluated_ids, with_control
from synapse_jax.evals.tasks.plan import parse_list
from synapse_jax.io.model_file import ModelFile
from synapse_jax.io.quoting import shown_path
from synapse_jax.spec.runtime import RuntimeProfile, resolve


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    flags.DEFINE_enum(
        "form", "plain", list(FORMS), "Words of the prompts: our own, or llama.cpp's.", flag_values=values
    )
    flags.DEFINE_string(
        "lengths", "1024", "Most tokens of prompt and answer together, as in 1024,4096.", flag_values=values
    )
    flags.DEFINE_string(
        "depths", "0.1,0.5,0.9", "Where the key lies in the filler, 0 to 1.", flag_values=values
    )
    flags.DEFINE_integer("max_new_tokens", 16, "Greedy tokens that may answer.", flag_values=values)
    flags.DEFINE_integer("seed", 0, "Seed of the keys.", flag_values=values)
    define_control(values)
    shared.define_runtime(values, context=None)
    define_checkpoint(values, "Put every prompt that is done into this file as they come.")
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Asks for the key of every prompt, a process each, and prints the answers."""
    check_checkpoint(values)
    check_files_differ(values, ("output", "checkpoint"))
    check_control(values, "passkey")
    plan = PasskeyPlan(
        parse_list(values.lengths, "lengths", int, "1024,4096"),
        parse_list(values.depths, "depths", float, "0.1,0.5,0.9"),
        values.max_new_tokens,
        values.seed,
    )
    profile = shared.profile_from(values)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(optional_file(values.output))
        model = stack.enter_context(open_model(values))
        context = resolve(profile, model.spec).context
        assert context is not None
        fixture = Fixture(values.form, model.tokenizer, shown_path(model.path))
        prompts = plan.prompts(fixture, context)
        control = stack.enter_context(given_control(values, max(plan.lengths), model.tokenizer))
        work = _Work(values, model, profile, plan, fixture, prompts, control)
        with work.checkpoint() as checkpoint:
            record = work.run(checkpoint)
        save(output, record)
    show(values, record, _table(record))
    return 0


@dataclasses.dataclass(frozen=True)
class _Work:
    """What is asked, checked before any process begins."""

    values: flags.FlagValues
    model: ModelFile
    profile: RuntimeProfile
    plan: PasskeyPlan
    fixture: Fixture
    prompts: list[PasskeyPrompt]
    control: Control | None

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[PasskeyCheckpoint | None]:
        """The checkpoint that the flags ask for; one of another run is refused."""
        path, resume = self.values.checkpoint, self.values.resume
        if path is None:
            yield None
            return
        with PasskeyCheckpoint(path, self._identity(), self.prompts, resume=resume) as checkpoint:
            yield checkpoint

    def run(self, checkpoint: PasskeyCheckpoint | None) -> dict[str, Any]:
        """Runs what is left and returns the record."""
        runs = [] if checkpoint is None else checkpoint.done.copy()
        log, total, done = say(self.values.progress), len(self.prompts), len(runs)
        if checkpoint is not None:
            # Every process compiles for itself: a run's fingerprints are in its line.
            checkpoint.begin({})
        if done:
            log(f"{done} of {total} prompts are in {self.values.checkpoint}")
        with PasskeyProcess(self.values) as process:
            for index, prompt in enumerate(self.prompts[done:], done + 1):
                log(f"prompt {index} of {total}: {len(prompt.ids)} tokens, the key at {prompt.key_at}")
                runs.append(self._beside(process.ask(prompt), prompt, log))
                if checkpoint is not None:
                    checkpoint.add(runs[-1])
        return self._record(runs, done)

    def _beside(
        self, run: dict[str, Any], prompt: PasskeyPrompt, log: Callable[[str], None]
    ) -> dict[str, Any]:
        """A run with the control's answer, if there is a control."""
        if self.control is None:
            return run
        log(f"the same {len(prompt.ids)} tokens: {self.control.name}")
        shown, total = Progress(self.values.progress, "control", "positions"), len(prompt.ids)
        return with_control(
            run,
            prompt,
            self.control,
            self.model.tokenizer,
            self.plan.answer_tokens,
            self.model.spec.vocab_size,
            lambda done: shown(done, total),
        )

    def _record(self, runs: list[dict[str, Any]], done: int) -> dict[str, Any]:
        pairs = list(zip(self.prompts, runs, strict=True))
        new = [run["timings"] for run in runs[done:]]
        load_s, compile_s, eval_s = (sum(t[name] for t in new) for name in ("load_s", "compile_s", "eval_s"))
        tokens = sum(run["tokens"]["evaluated_count"] for run in runs[done:])
        record = records.build_record(
            "passkey",
            arguments=shared.given_arguments(self.values),
            result={
                "form": self.fixture.form,
                "fixture_sha256": self.fixture.sha256,
                "seed": self.plan.seed,
                "answer_tokens": self.plan.answer_tokens,
                "control": control_fields(self.values, self.control),
                "prompts": len(runs),
                "found": sum(run["found"] for run in runs),
                "runs": runs,
            },
            model=self.model,
            profile=resolve(self.profile, self.model.spec),
            ids=[token for prompt in self.prompts for token in prompt.ids],
            evaluated=[token for prompt, run in pairs for token in evaluated_ids(prompt, run)],
            timings=records.Timings(load_s, compile_s, eval_s, tokens, done),
        )
        # Of the processes that evaluated, not of this one.
        record["memory"] |= {name: max(run["memory"][name] for run in runs) for name in _MOST}
        return record

    def _identity(self) -> dict[str, Any]:
        """What the answers depend on."""
        ids = [token for prompt in self.prompts for token in prompt.ids]
        return {
            "command": "passkey",
            **run_identity(self.model, self.profile, ids, np.array(ids)),
            "plan": dataclasses.asdict(self.plan),
            "fixture": self.fixture.sha256,
            "control": control_fields(self.values, self.control),
        }


_MOST = ("kv_allocated_bytes", "kv_live_bytes", "kv_positions", "kv_capacity", "peak_rss_bytes")
"""Figures of a process's memory of which the record gives the most."""


def _table(record: dict[str, Any]) -> list[tuple[str, str]]:
    result, memory, speed = record["result"], record["memory"], record["timings"]["tokens_per_second"]
    control = result["control"]
    return [
        *((f"{run['length']} at {run['depth']:g}", _answer(run)) for run in result["runs"]),
        ("found", f"{result['found']} of {result['prompts']}"),
        *([] if control is None else [("control", f"{control['engine']} on {control['given']}")]),
        ("prompts", f"{result['form']} (fixture {result['fixture_sha256'][:16]}…), seed {result['seed']}"),
        ("model", f"{record['model']['name']} ({record['model']['arch']}), {record['runtime']['precision']}"),
        ("attention", f"{record['runtime']['attention']}, KV {record['runtime']['kv_dtype']}"),
        (
            "most memory",
            f"{memory['peak_rss_bytes'] / 1e9:.2f} GB, KV {memory['kv_allocated_bytes'] / 1e6:.1f} MB",
        ),
        ("speed", "none" if speed is None else f"{speed:.1f} tokens/s"),
        ("profile", result["runs"][0]["fingerprints"]["profile"]),
    ]  # fmt: skip


def _answer(run: dict[str, Any]) -> str:
    found = "found" if run["found"] else "not found"
    others = f", beside {', '.join(run['other_numbers'])}" if run["other_numbers"] else ""
    return (
        f"{run['key']} {found}{others}: {run['text']!r}; {run['tokens']['evaluated_count']} positions, "
        f"{run['timings']['eval_s']:.1f} s{_beside(run)}"
    )


def _beside(run: dict[str, Any]) -> str:
    """What the control said, or that a failure had none."""
    control = run["control"]
    if control is None:
        return "" if run["found"] else "; no control ran"
    if run["identical"]:
        return "; the control's answer is the same"
    margin = "" if run["margin"] is None else f" (tokens part by {run['margin']:.2g} logits)"
    return f"; the control: {'found' if control['found'] else 'not found'}, {control['text']!r}{margin}"
