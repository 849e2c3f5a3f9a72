"""Scores the parity text here and in llama.cpp, position by position, and prints the table of BUILD.md.

    python tools/control_table.py --keep FOLDER --weights FOLDER [--only NAME …] [--table]

--weights holds <model>-f32.gguf, as tools/update_parity_golden.py makes them; llama.cpp is the binding of the
extra `control`. Every run is `synapse compare '' --control`, which refuses figures of other tokens. Records
are kept in the first FOLDER, and a second call takes what is there. --table only prints.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.catalog import resolve_model  # noqa: E402
from tools.corpus import corpus_path  # noqa: E402
from tools.parity_runs import GEMMA, SMOL, ParityRun, worst_difference  # noqa: E402

RUNS = (
    ParityRun(SMOL, 512, 40),
    ParityRun(SMOL, 2048, 10),
    ParityRun(SMOL, 4096, 5),
    ParityRun(SMOL, 8192, 4),
    ParityRun(GEMMA, 512, 24),
    ParityRun(GEMMA, 4096, 4),
    ParityRun(GEMMA, 16384, 1, tolerance=2e-4),
    ParityRun(GEMMA, 32768, 1, tolerance=2e-4),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--only", nargs="*", choices=[run.name for run in RUNS])
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.weights is None and not arguments.table:
        parser.error("--weights is missing")
    print("| model | n_ctx | chunks | positions | worst running figure | same top token | mean \\|ΔNLL\\| |")
    print("|---|---|---|---|---|---|---|")
    for run in RUNS:
        target = arguments.keep / f"{run.name}.json"
        if arguments.only and run.name not in arguments.only:
            continue
        if not target.exists() and not arguments.table:
            compare(run, target, arguments.weights)
        if target.exists():
            print(row(run, json.loads(target.read_text(encoding="utf-8"))), flush=True)


def compare(run: ParityRun, target: Path, weights: Path) -> None:
    """Runs one comparison. Files are links in the record's folder, so that it names no place of a machine."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.parent.resolve()
    text, model = corpus_path(), resolve_model(run.model)
    other = weights / f"{run.model}-f32.gguf"
    for file in (text, model, other):
        link = folder / file.name
        if not link.exists():
            link.symlink_to(file.resolve())
    command = [sys.executable, "-m", "synapse_jax", "compare", "", "--control", f"llama.cpp:{other.name}"]
    command += ["--model", model.name, "--text-file", text.name, "--context", str(run.n_ctx)]
    command += ["--chunks", str(run.chunks), "--output", target.name, "--progress", "lines"]
    # Threads of llama.cpp that wait by spinning would slow down ours.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def row(run: ParityRun, record: dict) -> str:
    """A line of the table."""
    result = record["result"]
    chunks = result["b"]["chunks"]
    ours, theirs = ([chunk[f"running_perplexity_{side}"] for chunk in chunks] for side in "ab")
    worst = worst_difference(ours, theirs)
    figures = f"{100 * worst:.5f} %" + ("" if worst <= run.tolerance else " (off)")
    cells = (
        run.model,
        f"{run.n_ctx:,}",
        result["chunks"],
        f"{result['positions']:,}",
        figures,
        f"{100 * result['same_top']:.3f} %",
        f"{result['delta_nll']['mean_abs']:.2e}",
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
