"""Measures prompt evaluation of a model with sliding windows over prompt lengths, beside itself without them.

    python tools/bench_window.py [--model gemma-3-270m] [--lengths 2048 4096 …] [--output FILE]

Without its windows the same model does work that grows with the square of the length in every layer. A
length's two sessions run one after the other. The record is written after every length, and lengths that a
former run has recorded are not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from synapse_jax.io.model_file import ModelFile, load  # noqa: E402
from synapse_jax.runtime.session import Session  # noqa: E402
from synapse_jax.spec.model import ModelSpec  # noqa: E402
from synapse_jax.spec.runtime import RuntimeProfile  # noqa: E402


class WithoutWindows:
    """A model whose layers all see every key. Its numbers mean nothing, its time does."""

    def __init__(self, model: ModelFile):
        self._model = model
        self.stop_ids: frozenset[int] = frozenset()
        self.spec: ModelSpec = dataclasses.replace(model.spec, window=0, window_layers=())

    def read_weight(self, name: str) -> np.ndarray:
        """The model's own weight."""
        return self._model.read_weight(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gemma-3-270m")
    parser.add_argument("--lengths", type=int, nargs="*", default=[2048, 4096, 8192, 16384, 32768])
    parser.add_argument("--longest-without", type=int, default=16384, help="longest prompt without windows")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    done: dict[str, Any] = {}
    if arguments.output and arguments.output.exists():
        done = json.loads(arguments.output.read_text())
    with load(arguments.model) as model:
        ids = np.random.RandomState(0).randint(1000, model.spec.vocab_size, max(arguments.lengths))
        for length in arguments.lengths:
            for name, source in (("windows", model), ("without", WithoutWindows(model))):
                key = f"{name} {length}"
                if key in done or (name == "without" and length > arguments.longest_without):
                    continue
                session = Session(
                    source, RuntimeProfile(context=length), positions=length, ready=[("step", 512)]
                )
                session.generate(ids[:512], 0)  # the first run plans its products
                started = time.perf_counter()
                session.generate(ids[:length], 0)
                done[key] = length / (time.perf_counter() - started)
                print(f"{key}: {done[key]:.0f} tokens/s", flush=True)
                if arguments.output:
                    arguments.output.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
