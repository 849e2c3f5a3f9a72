"""Scores the whole parity text and compares every running figure with llama.cpp's golden.

    python tools/parity.py --keep FOLDER [--n-ctx 512 2048 129]

Records are kept in FOLDER; a second run takes what is there instead of computing it again. The exit
code is 1 if a figure is off. About 20 minutes on two cores.
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

TOLERANCE = 2e-5
"""Relative difference of a running figure; llama.cpp prints four decimals."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--n-ctx", type=int, nargs="*", default=[512, 2048, 129])
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    golden = json.loads((ROOT / "tests" / "golden" / "parity_smollm2.json").read_text(encoding="utf-8"))
    worst = 0.0
    for n_ctx in arguments.n_ctx:
        worst = max(worst, compare(score(n_ctx, arguments.keep), golden, n_ctx))
    return 0 if worst <= TOLERANCE else 1


def score(n_ctx: int, folder: Path) -> dict:
    """The record of `synapse score` on the whole text."""
    target = folder / f"synapse-{n_ctx}.json"
    if not target.exists():
        command = [sys.executable, "-m", "synapse_jax", "score", "--text-file", str(corpus_path())]
        command += ["--context", str(n_ctx), "--output", str(target)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return json.loads(target.read_text(encoding="utf-8"))


def compare(record: dict, golden: dict, n_ctx: int) -> float:
    """Prints and returns the worst relative difference of a running figure."""
    theirs = golden["running_perplexity"][str(n_ctx)]
    ours = [chunk["running_perplexity"] for chunk in record["result"]["chunks"]]
    same = record["tokens"]["count"] == golden["tokens"]["count"]
    same &= record["tokens"]["sha256"] == golden["tokens"]["sha256"]
    if not same or len(ours) != len(theirs):
        sys.exit(f"n_ctx {n_ctx}: other tokens or chunks than the golden's")
    worst = max(abs(a / b - 1) for a, b in zip(ours, theirs, strict=True))
    print(
        f"n_ctx {n_ctx}: {len(ours)} chunks, {record['result']['scored_tokens']} scored tokens, perplexity "
        f"{ours[-1]:.5f} against {theirs[-1]:.4f}, worst running figure off by {100 * worst:.5f} %"
    )
    return worst


if __name__ == "__main__":
    sys.exit(main())
