"""Compares two traces of `synapse score --trace` over the same tokens.

    python tools/compare_traces.py REFERENCE OTHER

Prints the share of equal greedy tokens, mean and largest |ΔNLL|, and the ratio of the perplexities.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main() -> None:
    reference, other = (read(Path(path)) for path in sys.argv[1:])
    if [token[:3] for token in reference] != [token[:3] for token in other]:
        sys.exit("the traces are not of the same chunks, positions and tokens")
    nll = np.array([[token[3] for token in trace] for trace in (reference, other)])
    same = np.mean([a[4] == b[4] for a, b in zip(reference, other, strict=True)])
    difference = nll[1] - nll[0]
    print(
        f"{len(reference)} positions: greedy equal {100 * same:.2f} %, mean |ΔNLL| "
        f"{np.abs(difference).mean():.5f}, largest {np.abs(difference).max():.4f}, perplexity "
        f"{np.exp(nll[0].mean()):.4f} and {np.exp(nll[1].mean()):.4f}, ratio {np.exp(difference.mean()):.6f}"
    )


def read(path: Path) -> list[tuple[int, int, int, float, int]]:
    """(chunk, position, token, nll, greedy) of every line."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [tuple(line[name] for name in ("chunk", "position", "token", "nll", "greedy")) for line in lines]


if __name__ == "__main__":
    main()
