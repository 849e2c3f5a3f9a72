"""Measures how long a start takes: cold, with an empty cache of graphs, and warm, with a filled one.

    python tools/bench_start.py [--model NAME] [--context 512] [--rounds 5] [--output FILE]

Every start is a process of its own that scores one chunk, timed from before it is made; cold and warm ones
take turns. The parts are timed inside: importing jax, opening the file, lowering, compiling (or reading from
the cache), weights, the first chunk and a second one, whose difference is what a first run costs. `whole` is
all until the first chunk is scored, `beyond_loading` all but the weights. Where this machine refuses its own
cache entries there is no warm figure, and the report says so.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MODEL = "smollm2-135m-instruct"
TEXT = ROOT / "tools" / "demo_text.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.started is not None:
        print(json.dumps(start(arguments.model, arguments.context, arguments.started)))
        return
    starts: dict[str, list[dict]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        run(arguments, Path(folder) / "warm")  # fills the cache, and the system's memory of files
        for number in range(arguments.rounds):
            for name, cache in (("cold", f"cold-{number}"), ("warm", "warm")):
                starts[name].append(run(arguments, Path(folder) / cache))
                print(f"round {number + 1}: {name} {starts[name][-1]['whole_s']:.2f} s", file=sys.stderr)
    report = {
        "model": arguments.model,
        "context": arguments.context,
        "hardware": {"cores": len(os.sched_getaffinity(0)), "machine": platform.machine()},
        **{name: summary(parts) for name, parts in starts.items()},
    }
    if any(part["cache"] != ["hit"] for part in starts["warm"]):
        report["warm"] = "skipped: this machine's runtime refuses the cache entries that it has written"
    text = json.dumps(report, indent=1)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    print(text)


def run(arguments: argparse.Namespace, cache: Path) -> dict:
    """One start in a process of its own."""
    command = [sys.executable, __file__, "--model", arguments.model, "--context", str(arguments.context)]
    environment = {**os.environ, "SYNAPSE_GRAPH_CACHE": str(cache)}
    # The monotonic clock is one for all processes.
    command += ["--started", str(time.monotonic())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def start(name: str, context: int, made: float) -> dict:
    """The parts of a start, as `synapse score` goes through them, and a second chunk.

    `made` is when this process was asked for, by the monotonic clock.
    """
    started = time.perf_counter()

    def lap() -> float:
        nonlocal started
        before, started = started, time.perf_counter()
        return started - before

    import jax

    jax.devices()
    parts = {"import_jax_s": lap()}
    from synapse_jax.io.model_file import load
    from synapse_jax.io.text_file import read_text
    from synapse_jax.runtime.plan import scoring_entries
    from synapse_jax.runtime.session import Session
    from synapse_jax.spec.runtime import RuntimeProfile

    parts["import_engine_s"] = lap()
    with load(name) as model:
        model.sha256()
        parts["open_s"] = lap()
        ids = model.tokenizer.encode(read_text(TEXT))[:context]
        parts["tokenize_s"] = lap()
        rows = min(512, context - 1)
        session = Session(
            model,
            RuntimeProfile(context=context),
            ready=scoring_entries(context - 1, rows),
            positions=context - 1,
            log=lambda line: None,
        )
        parts["session_s"] = lap()
        (entry,) = session.compiled_entries
        parts |= {"lower_s": entry.lower_s, "compile_or_read_s": entry.compile_s, "load_s": session.load_s}
        session.score(ids, context // 2, rows=rows)
        parts["first_chunk_s"], parts["whole_s"] = lap(), time.monotonic() - made
        parts["beyond_loading_s"] = parts["whole_s"] - parts["load_s"]
        session.score(ids, context // 2, rows=rows)
        parts["second_chunk_s"] = lap()
        return {**parts, "cache": [entry.cache]}


def summary(starts: list[dict]) -> dict:
    """Median, least and most of every part."""
    names = [name for name in starts[0] if name != "cache"]
    values = {name: [part[name] for part in starts] for name in names}
    return {
        name: {"median": statistics.median(v), "lowest": min(v), "highest": max(v)}
        for name, v in values.items()
    }


if __name__ == "__main__":
    main()
