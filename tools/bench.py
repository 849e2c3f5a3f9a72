"""Measures scoring beside llama.cpp, on the same weights and cores, in one run.

    python tools/bench.py [--llama-cpp FOLDER] [--rounds 5] [--chunks 4] [--output FILE]

FOLDER holds built llama-perplexity and llama-quantize. Rounds alternate between the engines; the
result is the ratio of the medians, with the range of each. Without FOLDER only this project is measured.
Also: seconds to compile the entries that are ready at load, and the peak memory of `synapse score`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from synapse_jax.evals.score import Protocol, score_chunks  # noqa: E402
from synapse_jax.graph.fingerprint import thread_count  # noqa: E402
from synapse_jax.io.catalog import resolve_model  # noqa: E402
from synapse_jax.io.model_file import ModelFile, load  # noqa: E402
from synapse_jax.io.text_file import drop_trailing_newline, read_text  # noqa: E402
from synapse_jax.runtime.session import Session  # noqa: E402
from synapse_jax.spec.runtime import RuntimeProfile  # noqa: E402
from tools.corpus import corpus_path  # noqa: E402

MODEL = "smollm2-135m-instruct"
WARM_CHUNKS = 2
"""Chunks of the shorter of two llama-perplexity runs: their difference leaves loading out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--n-ctx", type=int, default=512)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    report = {
        "hardware": {"cores": thread_count(), "machine": platform.machine(), "processor": processor()},
        "n_ctx": arguments.n_ctx,
        "peak_rss_bytes": {str(n_ctx): peak_memory(n_ctx) for n_ctx in (512, 2048)},
    }
    with tempfile.TemporaryDirectory() as folder, load(MODEL) as model:
        session = Session(model, RuntimeProfile(context=arguments.n_ctx))
        report["compile_s"] = session.compile_s
        report["load_s"] = session.load_s
        engines = {"synapse": scorer(session, model, arguments.n_ctx, arguments.chunks)}
        if arguments.llama_cpp:
            engines["llama.cpp"] = llama_scorer(arguments, Path(folder))
        seconds = alternate(engines, arguments.rounds)
    report["tokens_per_second"] = {
        name: speeds([arguments.chunks * arguments.n_ctx / s for s in taken])
        for name, taken in seconds.items()
    }
    if arguments.llama_cpp:
        ours, theirs = (report["tokens_per_second"][name]["median"] for name in ("synapse", "llama.cpp"))
        report["ratio"] = ours / theirs
    text = json.dumps(report, indent=1)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    print(text)


def scorer(session: Session, model: ModelFile, n_ctx: int, chunks: int) -> Callable[[], float]:
    """Seconds that this project takes for `chunks` chunks; one chunk has been scored before."""
    text, _ = drop_trailing_newline(read_text(corpus_path()))
    protocol = Protocol(n_ctx, chunks=chunks)
    cut = protocol.cut(model.tokenizer.encode(text))
    list(score_chunks(session, cut[:1], protocol, rows=min(512, n_ctx - 1)))

    def run() -> float:
        started = time.perf_counter()
        scored = list(score_chunks(session, cut, protocol, rows=min(512, n_ctx - 1)))
        assert np.isfinite(scored[-1].running_perplexity)
        return time.perf_counter() - started

    return run


def llama_scorer(arguments: argparse.Namespace, folder: Path) -> Callable[[], float]:
    """Seconds that llama-perplexity takes for as many chunks, loading left out."""
    model = folder / "f32.gguf"
    quantize = arguments.llama_cpp / "llama-quantize"
    subprocess.run(
        [quantize, "--allow-requantize", resolve_model(MODEL), model, "F32"], check=True, capture_output=True
    )

    def wall(chunks: int) -> float:
        n_ctx = str(arguments.n_ctx)
        command = [
            arguments.llama_cpp / "llama-perplexity",
            "-m",
            model,
            "-f",
            corpus_path(),
            "-c",
            n_ctx,
            "-b",
            n_ctx,
        ]
        command += ["--chunks", str(chunks), "-t", str(thread_count())]
        command += ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - started

    return lambda: wall(WARM_CHUNKS + arguments.chunks) - wall(WARM_CHUNKS)


def alternate(engines: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round; the engines take turns, so that a slow minute hits both."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(rounds):
        for name, run in engines.items():
            seconds[name].append(run())
            print(
                f"round {number + 1}/{rounds}: {name} {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True
            )
    return seconds


def speeds(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def peak_memory(n_ctx: int) -> int:
    """Peak resident bytes of `synapse score` on two chunks of 512, or one longer chunk."""
    command = [
        sys.executable,
        "-m",
        "synapse_jax",
        "score",
        "--text-file",
        str(corpus_path()),
        "--context",
        str(n_ctx),
    ]
    command += ["--chunks", "2" if n_ctx <= 512 else "1", "--json", "--progress", "none"]
    done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=os.environ)
    return json.loads(done.stdout)["memory"]["peak_rss_bytes"]


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
