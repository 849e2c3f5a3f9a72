"""Measures many endings of one prompt against the prompt alone.

    python tools/bench_continuations.py [--model NAME] [--prompt 4000] [--endings 50] [--tokens 2]

Prints the seconds of `generate(prompt, 0)` and of `score_continuations`, medians of alternating rounds, their
ratio, and whether the scores are those of each text scored alone, to the bit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from synapse_jax.io.model_file import load  # noqa: E402
from synapse_jax.runtime.session import Session  # noqa: E402
from synapse_jax.spec.runtime import RuntimeProfile  # noqa: E402
from tools.corpus import corpus_path  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--endings", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", type=int, default=3, help="endings to score alone as well")
    arguments = parser.parse_args()
    with load(arguments.model) as model:
        ids = np.array(model.tokenizer.encode(corpus_path().read_bytes()), np.int32)
        prompt, rest = ids[: arguments.prompt], ids[arguments.prompt :]
        size = arguments.tokens
        endings = [rest[i * size : (i + 1) * size] for i in range(arguments.endings)]
        session = Session(model, RuntimeProfile(), ready=[])
    scores = session.score_continuations(prompt, endings)
    session.generate(prompt, 0)
    alone, together = [], []
    for _ in range(arguments.rounds):
        started = time.perf_counter()
        session.generate(prompt, 0)
        alone.append(time.perf_counter() - started)
        started = time.perf_counter()
        scores = session.score_continuations(prompt, endings)
        together.append(time.perf_counter() - started)
    equal = all(
        np.array_equal(session.score([*prompt, *ending], len(prompt)).nll, score.nll)
        for ending, score in list(zip(endings, scores, strict=True))[: arguments.check]
    )
    ratio = statistics.median(together) / statistics.median(alone)
    print(
        f"prompt alone {shown(alone)} s, with {len(endings)} endings {shown(together)} s, ratio {ratio:.3f}"
    )
    print(f"the first {arguments.check} endings scored alone: {'equal' if equal else 'NOT equal'} to the bit")


def shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


if __name__ == "__main__":
    main()
