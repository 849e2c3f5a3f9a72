"""Scores the parity runs and compares every running figure with llama.cpp's golden.

    python tools/parity.py --keep FOLDER [--only NAME …]

Records are kept in FOLDER; a second run takes what is there instead of computing it again. The exit
code is 1 if a figure is off. About an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.corpus import corpus_path  # noqa: E402
from tools.parity_runs import RUNS, ParityRun, read_golden, worst_difference  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=[run.name for run in RUNS])
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    golden = read_golden()
    runs = [run for run in RUNS if not arguments.only or run.name in arguments.only]
    off = [run.name for run in runs if not agrees(run, score(run, arguments.keep), golden)]
    if off:
        print(f"off: {', '.join(off)}")
    return 1 if off else 0


def score(run: ParityRun, folder: Path) -> dict:
    """The record of `synapse score`."""
    target = folder / f"synapse-{run.name}.json"
    if not target.exists():
        command = [sys.executable, "-m", "synapse_jax", "score", "--text-file", str(corpus_path())]
        command += [*run.score_flags, "--output", str(target)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return json.loads(target.read_text(encoding="utf-8"))


def agrees(run: ParityRun, record: dict, golden: dict) -> bool:
    """Prints the worst relative difference of a running figure; whether it is within the tolerance."""
    theirs = golden["runs"][run.name]["running_perplexity"]
    result, tokens = record["result"], golden["models"][run.model]["tokens"]
    ours = [chunk["running_perplexity"] for chunk in result["chunks"]]
    if any(record["tokens"][key] != tokens[key] for key in ("count", "sha256")) or len(ours) != len(theirs):
        sys.exit(f"{run.name}: other tokens or chunks than the golden's")
    worst = worst_difference(ours, theirs)
    print(
        f"{run.name}: {len(ours)} chunks, {result['scored_tokens']} scored tokens, perplexity {ours[-1]:.5f} "
        f"against {theirs[-1]:.4f}, worst running figure off by {100 * worst:.5f} % "
        f"(at most {100 * run.tolerance:g} %)",
        flush=True,
    )
    return worst <= run.tolerance


if __name__ == "__main__":
    sys.exit(main())
