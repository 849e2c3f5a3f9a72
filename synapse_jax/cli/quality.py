"""`synapse quality`."""

from __future__ import annotations

import contextlib
import dataclasses

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.checkpoints import check_checkpoint, define_checkpoint
from synapse_jax.cli.controls import check_control, define_control, given_control
from synapse_jax.cli.inputs import open_model, parse_time
from synapse_jax.cli.output import check_files_differ, optional_file, save, show
from synapse_jax.cli.progress import Progress, say, warn
from synapse_jax.cli.quality_run import QualityRun
from synapse_jax.cli.quality_table import table
from synapse_jax.errors import InputError
from synapse_jax.evals.tasks.case import Case
from synapse_jax.evals.tasks.filler import Filler, make_filler
from synapse_jax.evals.tasks.haystack import Haystack, project_haystack, read_haystack
from synapse_jax.evals.tasks.names import OWN
from synapse_jax.evals.tasks.plan import QualityPlan, parse_list
from synapse_jax.evals.tasks.prompt import PromptWriter
from synapse_jax.io.chat import ChatTemplate, MissingTemplate
from synapse_jax.io.model_file import ModelFile
from synapse_jax.spec.runtime import RuntimeProfile, resolve


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    _define_cases(values)
    define_control(values)
    shared.define_runtime(values, context=None, without="the longest of --lengths")
    flags.DEFINE_string(
        "plot", None, "Write a length × depth heat map a task: .png, .svg or .pdf.", flag_values=values
    )
    define_checkpoint(values, "Put every case into this file as they come.")
    shared.define_progress(values)
    shared.define_output(values)


def _define_cases(values: flags.FlagValues) -> None:
    """Flags that decide which prompts there are."""
    for name, default, text in (
        ("tasks", ",".join(OWN), f"Tasks, of {', '.join(OWN)}."),
        ("lengths", "4096", "Most tokens of prompt and answer together, as in 4096,8192."),
        ("depths", "0.1,0.5,0.9", "Where the answer lies in the text, 0 to 1; tracking has no depth."),
        ("haystack", None, "Text files to hide facts in, as in a.txt,b.txt; by default this project's own."),
        ("haystack_sha256", None, "Refuse a haystack whose text has another SHA-256."),
        ("chat_time", "2026-01-01T00:00:00", "The time that the chat template sees."),
    ):
        flags.DEFINE_string(name, default, text, flag_values=values)
    flags.DEFINE_integer("seed", 0, "Seed of keys, values and places.", flag_values=values)
    flags.DEFINE_integer("cases_per_cell", 1, "Cases a task, length and depth.", flag_values=values)
    flags.DEFINE_integer(
        "answer_tokens", None, "Most tokens of an answer; by default the task's own.", flag_values=values
    )
    flags.DEFINE_bool(
        "ruler", False, "Prompts and answer budgets of RULER's needle and tracking tasks.", flag_values=values
    )
    flags.DEFINE_bool(
        "chat",
        None,
        "Apply the model's chat template, or not with --no-chat; by default where it has one.",
        flag_values=values,
    )


def run(values: flags.FlagValues) -> int:
    """Asks the model, and the control, and prints what they knew."""
    check_checkpoint(values)
    check_files_differ(values, ("output", "plot", "checkpoint"))
    plan = plan_from(values)
    profile = _profile(values, plan)
    if values.plot is not None:
        from synapse_jax.evals.plots import check_plot  # says at once if there is no library for it

        check_plot(values.plot)
    check_control(values, "quality")
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(optional_file(values.output))
        model = stack.enter_context(open_model(values))
        resolve(profile, model.spec)
        haystack = _haystack(values)
        filler = make_filler(haystack, model.tokenizer, max(plan.lengths))
        if filler.left_out:
            warn(
                f"{filler.left_out} sentences of the haystack do not survive this vocabulary and are left out"
            )
        writer = PromptWriter(model.tokenizer, _template(values, model), parse_time(values.chat_time))
        cases = _write(values, plan, filler, writer)
        control = stack.enter_context(given_control(values, max(plan.lengths), model.tokenizer))
        quality = QualityRun(values, model, profile, plan, filler, writer, cases, control)
        with quality.checkpoint() as checkpoint:
            record = quality.run(checkpoint)
        save(output, record)
    show(values, record, table(record))
    if values.plot is not None:
        from synapse_jax.evals.quality_plot import plot_quality

        plot_quality(record, values.plot)
    return 0


def plan_from(values: flags.FlagValues) -> QualityPlan:
    """The plan that the flags ask for."""
    return QualityPlan(
        tasks=tuple(word.strip() for word in values.tasks.split(",")),
        lengths=parse_list(values.lengths, "lengths", int, "4096,8192"),
        depths=parse_list(values.depths, "depths", float, "0.1,0.5,0.9"),
        seed=values.seed,
        samples=values.cases_per_cell,
        answer_tokens=values.answer_tokens,
        ruler=values.ruler,
    )


def _profile(values: flags.FlagValues, plan: QualityPlan) -> RuntimeProfile:
    """The profile; its context is the longest length unless a longer one is given."""
    profile, longest = shared.profile_from(values), max(plan.lengths)
    if profile.context is not None and profile.context < longest:
        raise InputError(f"length {longest} is above the context of {profile.context}")
    return dataclasses.replace(profile, context=profile.context or longest)


def _haystack(values: flags.FlagValues) -> Haystack:
    given = values.haystack
    haystack = project_haystack() if given is None else read_haystack(given.split(","))
    haystack.check(values.haystack_sha256)
    return haystack


def _template(values: flags.FlagValues, model: ModelFile) -> ChatTemplate | None:
    """The chat template in force.

    Raises:
        InputError: it is asked for and there is none, or the one there is cannot be used.
    """
    if values.chat is False:
        return None
    try:
        return model.chat_template
    except MissingTemplate:
        if values.chat:
            raise
        say(values.progress)("the model has no chat template: prompts are continued as they are")
        return None


def _write(values: flags.FlagValues, plan: QualityPlan, filler: Filler, writer: PromptWriter) -> list[Case]:
    """All cases, before anything is loaded."""
    return list(plan.cases(filler, writer, Progress(values.progress, "prompts", "cases")))
