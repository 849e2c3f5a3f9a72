"""The study of page activation: what a budget of pages costs, chosen by bounds or at random.

    python tools/page_study.py --keep FOLDER [--only NAME …] [--table] [--plot FILE]

The last 1,023 targets of the first chunk of the parity text, each evaluated in the decode role behind a dense
prompt; dense scoring of the same targets is the reference. Every run is `synapse score`; its record and trace
are kept in FOLDER as it ends, and a second call takes what is there. --table and --plot only read.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.catalog import resolve_model  # noqa: E402
from tools.corpus import corpus_path  # noqa: E402
from tools.parity_runs import GEMMA, SMOL  # noqa: E402

TARGETS, WINDOW = 1023, 256
BUDGETS, PAGES, SELECTIONS = (512, 2048, 256, 1024), (16, 64), ("bound", "random")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A model at a context."""

    model: str
    n_ctx: int
    rope: str | None = None

    @property
    def name(self) -> str:
        """Name of its runs' files, before the policy."""
        return f"{self.model}-{self.n_ctx}"


SETTINGS = (
    Setting(SMOL, 8192),
    Setting(GEMMA, 8192),
    Setting(SMOL, 16384, "yarn:4:8192"),
    Setting(GEMMA, 16384),
    Setting(GEMMA, 32768),
)
POLICIES = tuple((page, budget, select) for page in PAGES for budget in BUDGETS for select in SELECTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=[setting.name for setting in SETTINGS])
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    settings = [s for s in SETTINGS if not arguments.only or s.name in arguments.only]
    if arguments.table:
        print_table(settings, arguments.keep)
    if arguments.plot:
        plot(settings, arguments.keep, arguments.plot)
    if not arguments.table and not arguments.plot:
        for setting in settings:
            for policy in (None, *POLICIES):
                score(setting, policy, arguments.keep)


def name_of(setting: Setting, policy: tuple[int, int, str] | None) -> str:
    """Name of a run's files."""
    if policy is None:
        return f"{setting.name}-dense"
    page, budget, select = policy
    return f"{setting.name}-{select}-{budget}-page-{page}"


def score(setting: Setting, policy: tuple[int, int, str] | None, keep: Path) -> None:
    """One run; nothing if its record is there. Files are links in its folder, so that the record names no
    place of a machine."""
    keep.mkdir(parents=True, exist_ok=True)
    folder, name = keep.resolve(), name_of(setting, policy)
    if (folder / f"{name}.json").exists():
        return
    text, model = corpus_path(), resolve_model(setting.model)
    for file in (text, model):
        if not (folder / file.name).exists():
            (folder / file.name).symlink_to(file)
    command = [sys.executable, "-m", "synapse_jax", "score", "--model", model.name, "--text-file", text.name]
    command += ["--context", str(setting.n_ctx), "--chunks", "1", "--score-last", str(TARGETS)]
    command += ["--output", f"{name}.json", "--trace", f"{name}.trace", "--progress", "lines"]
    if setting.rope is not None:
        command += ["--rope-scaling", setting.rope]
    if policy is not None:
        page, budget, select = policy
        attention = f"pages:budget={budget},page={page},window={WINDOW},select={select}"
        command += ["--attention", attention, "--scoring-rows", "1"]
    print(name, flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def read(setting: Setting, policy: tuple[int, int, str] | None, keep: Path):
    """(NLL float64 [n], greedy [n], read share) of a run; None if it is not there."""
    name = name_of(setting, policy)
    if not (keep / f"{name}.json").exists():
        return None
    record = json.loads((keep / f"{name}.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (keep / f"{name}.trace").read_text(encoding="utf-8").splitlines()]
    nll, greedy = (np.array([line[key] for line in lines]) for key in ("nll", "greedy"))
    return nll, greedy, record["result"].get("read_share")


def paired(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Mean of b − a and its standard error: both are of the same targets."""
    difference = b - a
    return float(difference.mean()), float(difference.std() / math.sqrt(len(difference) - 1))


def print_table(settings: list[Setting], keep: Path) -> None:
    """A line a budget and page: the change in perplexity with its paired error, and random − bound in NLL."""
    print(
        "| model, context | page | budget | read share | bound | random | random − bound (NLL) | same token |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for setting in settings:
        dense = read(setting, None, keep)
        if dense is None:
            continue
        for page in PAGES:
            for budget in sorted(BUDGETS):
                found = {select: read(setting, (page, budget, select), keep) for select in SELECTIONS}
                if None in found.values():
                    continue
                bound, random = found["bound"], found["random"]
                mean, error = paired(bound[0], random[0])
                cells = (
                    f"{setting.model}, {setting.n_ctx:,}",
                    page,
                    f"{budget:,}",
                    f"{100 * bound[2]:.1f} %",
                    change(dense[0], bound[0]),
                    change(dense[0], random[0]),
                    f"{mean:.4f} ± {error:.4f}",
                    ", ".join(f"{100 * np.mean(dense[1] == run[1]):.1f} %" for run in (bound, random)),
                )
                print(f"| {' | '.join(map(str, cells))} |")


def change(dense: np.ndarray, other: np.ndarray) -> str:
    """Change of the perplexity, with the error of the paired difference."""
    mean, error = paired(dense, other)
    return f"{100 * math.expm1(mean):+.2f} ± {100 * math.exp(mean) * error:.2f} %"


def plot(settings: list[Setting], keep: Path, target: Path) -> None:
    """Change in perplexity against the share of positions that were read, a panel a setting."""
    import matplotlib.pyplot as plt

    there = [setting for setting in settings if read(setting, None, keep) is not None]
    figure, panels = plt.subplots(1, len(there), figsize=(5 * len(there), 4), squeeze=False, sharey=True)
    for panel, setting in zip(panels[0], there, strict=True):
        dense = read(setting, None, keep)
        for page in PAGES:
            for select in SELECTIONS:
                runs = [read(setting, (page, budget, select), keep) for budget in sorted(BUDGETS)]
                points = [(run[2], *paired(dense[0], run[0])) for run in runs if run is not None]
                if points:
                    share, mean, error = np.array(points).T
                    style = {"bound": "-", "random": "--"}[select]
                    label = f"{select}, page {page}"
                    panel.errorbar(
                        100 * share,
                        100 * np.expm1(mean),
                        100 * np.exp(mean) * error,
                        ls=style,
                        marker=".",
                        label=label,
                    )
        panel.set(title=f"{setting.model}, {setting.n_ctx:,}", xlabel="positions read, %")
    panels[0][0].set(ylabel="change in perplexity, %", yscale="symlog")
    panels[0][-1].legend()
    figure.tight_layout()
    figure.savefig(target)


if __name__ == "__main__":
    main()
