"""What page activation costs: perplexity at several budgets, by bound and by chance, against dense attention.

    python tools/page_study.py --output FOLDER [--only MODEL:CONTEXT …]   # runs what is not there yet
    python tools/page_study.py --output FOLDER --table                    # a markdown table of what is there
    python tools/page_study.py --output FOLDER --plot FILE.png

Each run scores the last 1,023 targets of the parity text's first chunk, a row at a time, and is kept as the
record that `synapse score` with the same flags gives, and a compressed trace. Prompts attend densely, so one
evaluation of the prompt serves all runs of a page size. The dense reference is page activation with a budget
that covers the context: its bits are those of dense attention in the same entry
(`tests/parity/test_page_activation.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import math
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import synapse_jax as sj  # noqa: E402
from synapse_jax.cli import flags as shared  # noqa: E402
from synapse_jax.cli import score  # noqa: E402
from synapse_jax.cli.inputs import open_model, read_scored  # noqa: E402
from synapse_jax.cli.output import optional_file, save  # noqa: E402
from synapse_jax.cli.sessions import timed  # noqa: E402
from synapse_jax.errors import InputError, RunError  # noqa: E402
from synapse_jax.evals import record as records  # noqa: E402
from synapse_jax.evals.score import score_chunks, summarize  # noqa: E402
from synapse_jax.evals.trace import open_trace  # noqa: E402
from synapse_jax.io.catalog import resolve_model  # noqa: E402
from synapse_jax.runtime.sharing import with_attention  # noqa: E402
from tools.corpus import corpus_path  # noqa: E402
from tools.parity_runs import GEMMA, SMOL  # noqa: E402

SETTINGS = ((SMOL, 8192, None), (GEMMA, 8192, None), (SMOL, 16384, "yarn:4:8192"), (GEMMA, 16384, None),
            (GEMMA, 32768, None))  # fmt: skip
"""(model, context, RoPE scaling), the smallest context first."""
PAGES, BUDGETS, WINDOW, TARGETS = (16, 64), (512, 2048, 1024, 256), 256, 1023
TICKS = (0, 1, 2, 5, 10, 20, 50, 100)
"""Per cent, in the plot."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One score."""

    model: str
    context: int
    rope: str | None
    select: str
    """dense, bound or random."""
    page: int = 16
    budget: int = 0

    @property
    def name(self) -> str:
        """Name of its files."""
        policy = "dense" if self.select == "dense" else f"{self.select}-{self.page}-{self.budget}"
        return f"{self.model}-{self.context}-{policy}"

    @property
    def flags(self) -> list[str]:
        """Of `synapse score`, without the text."""
        budget, select = (self.context, "bound") if self.select == "dense" else (self.budget, self.select)
        policy = f"pages:budget={budget},page={self.page},window={WINDOW},select={select}"
        flags = [
            "--model",
            resolve_model(self.model).name,
            "--context",
            str(self.context),
            "--attention",
            policy,
        ]
        flags += ["--scoring-rows", "1", "--score-last", str(TARGETS), "--chunks", "1"]
        return flags + ([] if self.rope is None else ["--rope-scaling", self.rope])


def runs_of(model: str, context: int, rope: str | None) -> list[list[Run]]:
    """All runs of a setting by page size, the most telling ones first."""
    return [
        [Run(model, context, rope, "dense")] * (page == PAGES[0])
        + [
            Run(model, context, rope, select, page, budget)
            for budget in BUDGETS
            for select in ("bound", "random")
        ]
        for page in PAGES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[":"], help="MODEL:CONTEXT, either part may be empty")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--plot")
    arguments = parser.parse_args()
    settings = [s for s in SETTINGS if any(matches(word, *s[:2]) for word in arguments.only)]
    if not settings:
        known = ", ".join(f"{model}:{context}" for model, context, _ in SETTINGS)
        parser.error(f"--only {' '.join(arguments.only)} names none of {known}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        print(table(arguments.output, settings))
    if arguments.plot:
        plot(arguments.output, settings, arguments.plot)
    if not arguments.table and not arguments.plot:
        os.chdir(arguments.output)
        for setting in settings:
            for runs in runs_of(*setting):
                measure([run for run in runs if not Path(f"{run.name}.json").exists()])


def matches(word: str, model: str, context: int) -> bool:
    """Whether 'MODEL:CONTEXT' names a setting."""
    wanted, _, length = word.partition(":")
    return wanted in ("", model) and length in ("", str(context))


def measure(runs: list[Run]) -> None:
    """Scores runs that share a prompt, in the working folder; a run's record comes last."""
    if not runs:
        return
    # Files are links beside the record, so that it names no place of a machine.
    for file in (corpus_path(), resolve_model(runs[0].model)):
        if not Path(file.name).exists():
            Path(file.name).symlink_to(file)
    values = [parsed(run) for run in runs]
    profiles = [shared.profile_from(flags) for flags in values]
    with open_model(values[0]) as model:
        first = sj.Session(model, profiles[0], ready=[], positions=runs[0].context - 1)
        for index, run in enumerate(runs):
            session = with_attention(first, profiles[index].attention) if index else first
            keep(run, values[index], model, session, evaluated=TARGETS if index else run.context)


def parsed(run: Run):
    """The flags of `synapse score` that a run has."""
    flags = shared.CommandFlags("score", "", score.define)
    flags.parse(["--text-file", corpus_path().name, "--progress", "none", *run.flags])
    return flags.values


def keep(run: Run, values, model, session: sj.Session, evaluated: int) -> None:
    """Scores a run and writes its trace and its record; `evaluated` positions are not there yet."""
    tokens, protocol, chunks = read_scored(values, model)
    trace = Path(f"{run.name}.jsonl")
    with open_trace(str(trace), None) as lines:

        def work():
            chunk = score_chunks(session, chunks, protocol, rows=1, reuse=True, trace=lines.write)
            return summarize(list(chunk), protocol)

        found, seconds = timed(session, work)
    Path(f"{trace.name}.gz").write_bytes(gzip.compress(trace.read_bytes(), mtime=0))
    trace.unlink()
    rows = {"dropped_trailing_newline": tokens.dropped_newline, "scoring_rows": 1, "step_rows": 1}
    record = records.build_record(
        "score",
        arguments=shared.given_arguments(values),
        result={**dataclasses.asdict(found), **rows},
        model=model,
        session=session,
        ids=tokens.ids,
        evaluated=chunks,
        timings=records.Timings(session.load_s, session.compile_s, seconds, evaluated, 0),
    )
    with optional_file(f"{run.name}.json") as output:
        save(output, record)
    print(f"{run.name}: perplexity {found.perplexity:.4f}, {seconds:.0f} s", flush=True)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A run's figures by scored position."""

    nll: np.ndarray
    greedy: np.ndarray
    read_share: float


def read(run: Run, folder: Path) -> Measured | None:
    """What is there of a run."""
    record = folder / f"{run.name}.json"
    if not record.exists():
        return None
    with gzip.open(folder / f"{run.name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        tokens = [json.loads(line) for line in lines]
    share = json.loads(record.read_text(encoding="utf-8"))["result"]["read_share"]
    return Measured(
        np.array([token["nll"] for token in tokens]), np.array([token["greedy"] for token in tokens]), share
    )


def paired(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Mean of b − a over positions, and its standard error."""
    change = b - a
    return float(change.mean()), float(change.std(ddof=1)) / math.sqrt(len(change))


def table(folder: Path, settings) -> str:
    """Perplexity against dense with its paired error, bound against random, greedy agreement, read share."""
    lines = [
        "| model, context | page | budget | read | bound | random | bound − random, ΔNLL | same greedy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model, context, rope in settings:
        dense = read(Run(model, context, rope, "dense"), folder)
        if dense is None:
            continue
        shown = f"{model}, {context:,}"
        lines.append(f"| {shown} | dense | | 100 % | {math.exp(dense.nll.mean()):.4f} | | | |")
        for page in PAGES:
            for budget in sorted(BUDGETS):
                runs = [Run(model, context, rope, select, page, budget) for select in ("bound", "random")]
                bound, random = (read(run, folder) for run in runs)
                there = bound or random
                if there is None:
                    continue
                changes = ["" if one is None else _percent(dense, one) for one in (bound, random)]
                difference = ""
                if bound is not None and random is not None:
                    mean, error = paired(random.nll, bound.nll)
                    difference = f"{mean:+.4f} ± {error:.4f}"
                same = " / ".join(
                    "–" if one is None else f"{100 * (one.greedy == dense.greedy).mean():.1f} %"
                    for one in (bound, random)
                )
                share = f"{100 * there.read_share:.1f} %"
                lines.append(
                    f"| {shown} | {page} | {budget:,} | {share} | {changes[0]} | {changes[1]} | "
                    f"{difference} | {same} |"
                )
    return "\n".join(lines)


def _percent(dense: Measured, one: Measured) -> str:
    """Change of the perplexity; its error is that of the paired difference of mean NLL."""
    mean, error = paired(dense.nll, one.nll)
    ratio = math.exp(mean)
    return f"{100 * (ratio - 1):+.2f} % ± {100 * ratio * error:.2f}"


def plot(folder: Path, settings, path: str) -> None:
    """Perplexity change over read share, a panel a model and context."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(settings), 4.5), layout="constrained")
    panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    panels[0].set_ylabel("perplexity change, %")
    for axes, (model, context, rope) in zip(panels, settings, strict=True):
        axes.set(title=f"{model}, {context:,}", xlabel="positions read, %")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_yticks(TICKS, map(str, TICKS))
        axes.grid(axis="y", alpha=0.3)
        dense = read(Run(model, context, rope, "dense"), folder)
        for select, style in (("bound", "o-"), ("random", "s--")):
            for page in PAGES:
                runs = [Run(model, context, rope, select, page, budget) for budget in sorted(BUDGETS)]
                found = [one for run in runs if (one := read(run, folder)) is not None]
                if dense is None or not found:
                    continue
                means, errors = zip(*(paired(dense.nll, one.nll) for one in found), strict=True)
                ratio = np.exp(means)
                axes.errorbar(
                    [100 * one.read_share for one in found],
                    100 * (ratio - 1),
                    100 * ratio * np.array(errors),
                    fmt=style,
                    capsize=3,
                    label=f"{select}, pages of {page}",
                )
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(f"page_study: error: {error}")
