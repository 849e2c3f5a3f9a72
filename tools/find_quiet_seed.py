"""Finds seeds with which a TINY case amplifies rounding least: `python tools/find_quiet_seed.py NAME…`.

Attention of the TINY models is peaked, so that any float32 evaluation of most seeds is about 1e-4 from
float64. Eight numpy evaluations in float32, each with the width and the FFN in another order, tell how much.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.float64_forward import float64_logits, forward
from tests.tiny import Tiny, tiny_weights
from tests.tiny_cases import CASES, tokens

EVALUATIONS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=CASES, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=200)
    arguments = parser.parse_args()
    for name in arguments.names:
        spread = {seed: noise(name, seed, np.inf) for seed in range(min(4, arguments.seeds))}
        for seed in range(len(spread), arguments.seeds):
            spread[seed] = noise(name, seed, sorted(spread.values())[2])
        best = sorted(spread, key=lambda seed: spread[seed])[:3]
        print(name, ", ".join(f"seed {seed}: {spread[seed]:.1e}" for seed in best), flush=True)


def noise(name: str, seed: int, limit: float) -> float:
    """Largest distance of the float32 evaluations from float64; stops where one is beyond the limit."""
    tiny, ids = dataclasses.replace(CASES[name], seed=seed), tokens(name)
    exact, worst = float64_logits(tiny, ids), 0.0
    for order in range(EVALUATIONS):
        worst = max(worst, float(np.abs(forward(tiny, reordered(tiny, order), ids) - exact).max()))
        if worst > limit:
            break
    return worst


def reordered(tiny: Tiny, order: int) -> dict[str, np.ndarray]:
    """The same model with its residual stream and its FFN in another order, float32."""
    random = np.random.RandomState(order)
    stream, inner = random.permutation(tiny.D), random.permutation(tiny.ffn_width)
    out = {}
    for name, array in tiny_weights(tiny).items():
        last = name.rpartition(".")[2]
        if last in ("gate", "up"):
            array = array[inner]
        if last == "down":
            array = array[:, inner]
        if last in ("o", "down") or (last.endswith("norm") and last not in ("q_norm", "k_norm")):
            array = array[stream]
        elif array.ndim == 2:
            array = array[:, stream]
        out[name] = np.ascontiguousarray(array)
    return out


if __name__ == "__main__":
    main()
