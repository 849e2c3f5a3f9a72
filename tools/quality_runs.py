"""Long-context answers on record: the original's 28 cases, pass keys, and Gemma far above its window.

    python tools/quality_runs.py --output FOLDER [--only ROW …] [--weights FOLDER]   # what is not there yet
    python tools/quality_runs.py --output FOLDER --table            # markdown of what is there
    python tools/quality_runs.py --output FOLDER --plot FILE.png    # a heat map a model, FILE-MODEL.png
    python tools/quality_runs.py --list

A row is one process of `synapse`, and its record is ROW.json. With --weights, a folder of <model>-f32.gguf as
tools/update_parity_golden.py makes them, llama.cpp (extra `control`) answers the prompts at 2,048 and 4,096
too, and the longer ones that this engine failed. Above a model's window the file is <model>-yarn-f32.gguf,
which declares the scaling (BUILD.md has the command), and this engine reads it too. Killed rows of `quality`
and `passkey` go on after the last case, from the same checkout, whose texts are the haystack; `generate`
starts over.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.catalog import resolve_model  # noqa: E402
from tools.parity_runs import GEMMA, SMOL  # noqa: E402
from tools.quality_rows import ANSWER_TOKENS, LENGTHS, ROWS, TASKS, Row  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", choices=[row.name for row in ROWS], metavar="ROW")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if not arguments.only or row.name in arguments.only]
    if arguments.list:
        print("\n".join(f"{row.name}: {' '.join(row.arguments)}" for row in rows))
        return 0
    if arguments.output is None:
        parser.error("--output is missing")
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        print(table(rows, arguments.output))
    if arguments.plot:
        plot(rows, arguments.output, arguments.plot)
    if arguments.table or arguments.plot:
        return 0
    left = [row for row in rows if not (arguments.output / f"{row.name}.json").exists()]
    failed = [row.name for row in left if not measure(row, arguments.output, arguments.weights)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def measure(row: Row, folder: Path, weights: Path | None) -> bool:
    """Runs a row; whether it went well. Files are links beside the record, so that it names no machine."""
    if row.needs_control and weights is None:
        print(f"{row.name}: left out, it needs --weights", flush=True)
        return True
    link(folder, resolve_model(row.model))
    arguments = row.arguments
    if row.has_control and weights is not None:
        link(folder, weights / row.control)
        arguments.append(f"--control=llama.cpp:{row.control}")
    if row.command == "generate":
        tokens = folder / f"tokens-{row.length}.txt"
        tokens.write_text(" ".join(map(str, synthetic(row.length - ANSWER_TOKENS + 1))), encoding="ascii")
    print(f"{row.name}: synapse {' '.join(arguments)}", flush=True)
    # Threads of llama.cpp that wait by spinning would slow down ours.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "synapse_jax", *arguments, "--progress=lines"]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    if done.returncode == 130:
        raise KeyboardInterrupt
    return done.returncode == 0


def link(folder: Path, file: Path) -> None:
    """Makes a file appear in the folder under its own name."""
    here = folder / file.name
    if not here.exists():
        here.symlink_to(file.resolve())


def synthetic(count: int) -> list[int]:
    """Token IDs that say nothing, for vocabularies of 49,152 and more; the same on any machine."""
    state, ids = 1, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append(256 + state // 4096 % 48_000)
    return ids


def table(rows: list[Row], folder: Path) -> str:
    """What was found of what was asked, by task and length as the original has it; then a line a row."""
    there = {row: record for row in rows if (record := read(row, folder)) is not None}
    lines = [
        f"| model, task | {' | '.join(f'{length:,}' for length in LENGTHS)} | all |",
        f"|---|{'---|' * len(LENGTHS)}---|",
    ]
    for model in (SMOL, GEMMA):
        for task in TASKS:
            cells = [found(there, model, task, (length,)) for length in LENGTHS]
            cells.append(found(there, model, task, LENGTHS))
            if any(cells):
                lines.append(f"| {model}, {task} | {' | '.join(cells)} |")
    lines += [
        "",
        "| row | evaluated | load, compile, eval, s | tokens/s | most memory, GB | KV, MB | answers |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(figures(row, record) for row, record in there.items())])


def read(row: Row, folder: Path) -> dict[str, Any] | None:
    """The record of a row, if it is there."""
    path = folder / f"{row.name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def found(there: dict[Row, dict[str, Any]], model: str, task: str, lengths: tuple[int, ...]) -> str:
    """`3 of 3`, and how many of a control's answers are ours to the byte; empty where nothing was asked."""
    cells = [
        cell
        for row, record in there.items()
        if row.is_table and row.model == model
        for cell in record["result"]["cells"]
        if cell["task"] == task and cell["length"] in lengths
    ]
    if not cells:
        return ""
    asked = sum(cell["cases"] for cell in cells)
    text = f"{sum(cell['right'] + cell['mixed'] for cell in cells)} of {asked}"
    if any(cell["partial"] for cell in cells):
        text += f" (names {100 * sum(cell['score'] * cell['cases'] for cell in cells) / asked:.0f} %)"
    told = [cell for cell in cells if cell["identical"] is not None]
    if told:
        same, of = (sum(cell[name] for cell in told) for name in ("identical", "cases"))
        text += f", as the control {same} of {of}"
    return text


def figures(row: Row, record: dict[str, Any]) -> str:
    """A line of a record's timings, memory and answers."""
    times, memory = record["timings"], record["memory"]
    seconds = ", ".join(f"{times[name]:.1f}" for name in ("load_s", "compile_s", "eval_s"))
    speed = times["tokens_per_second"]
    cells = (
        row.name,
        f"{record['tokens']['evaluated_count']:,}",
        seconds + (f" ({times['resumed_chunks']} resumed)" if times["resumed_chunks"] else ""),
        "" if speed is None else f"{speed:.1f}",
        f"{memory['peak_rss_bytes'] / 1e9:.2f}",
        f"{memory['kv_allocated_bytes'] / 1e6:.1f}",
        "; ".join(ANSWERS[row.command](record["result"])),
    )
    return f"| {' | '.join(cells)} |"


def _quality_answers(result: dict[str, Any]) -> list[str]:
    cases, told = result["cases"], result["agreement"]
    if result["samples"] > 1:
        answers = [f"{sum(not case['failed'] for case in cases)} of {len(cases)} right"]
    else:
        answers = [f"{_name(case)}: {_cell(case['ours']['text'])}" for case in cases]
    if told is None:
        return answers
    alike = f"of {told['failed']} failed {told['control_failed_the_same_way']} like the control"
    return [*answers, f"{told['identical']} of {told['cases']} as the control", alike]


def _name(case: dict[str, Any]) -> str:
    return case["task"] if case["depth"] is None else f"{case['task']} {case['depth']:g}"


def _passkey_answers(result: dict[str, Any]) -> list[str]:
    said = [(run, "" if run["found"] else ", not") for run in result["runs"]]
    answers = [f"{run['depth']:g}{no} {run['key']}: {_cell(run['text'])}" for run, no in said]
    # Records of before there was a control of pass keys say nothing of one.
    told = [run["identical"] for run in result["runs"] if run.get("control")]
    return [*answers, f"{sum(told)} of {len(told)} as the control"] if told else answers


def _cell(text: str) -> str:
    """A text within a cell of a markdown table."""
    return "`" + json.dumps(text[:40], ensure_ascii=False)[1:-1].replace("|", "\\|").replace("`", "'") + "`"


ANSWERS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "quality": _quality_answers,
    "passkey": _passkey_answers,
    "generate": lambda result: [_cell(result["text"])],
}
"""What was answered, by command."""


def plot(rows: list[Row], folder: Path, path: Path) -> None:
    """A length × depth heat map a task, all lengths of a model together."""
    from synapse_jax.evals.quality_plot import plot_quality

    for model in (SMOL, GEMMA):
        own = [row for row in rows if row.is_table and row.model == model]
        records = [record for row in own if (record := read(row, folder)) is not None]
        if records:
            cells = [cell for record in records for cell in record["result"]["cells"]]
            named = path.with_name(f"{path.stem}-{model}{path.suffix}")
            plot_quality({**records[0], "result": {**records[0]["result"], "cells": cells}}, str(named))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
