"""Rows of the recorded runs: flags that the commands take, contexts that hold them, and their tables."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from synapse_jax.cli import flags as shared
from synapse_jax.cli.main import COMMANDS
from synapse_jax.io.model_file import load
from synapse_jax.spec.runtime import resolve

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools import quality_runs
from tools.parity_runs import GEMMA, SMOL
from tools.quality_rows import ANSWER_TOKENS, LENGTHS, ROWS, TASKS, quality_row, speed_row
from tools.quality_runs import synthetic, table


@pytest.fixture(scope="module")
def specs():
    """Specs of the catalog's models, by name."""
    found = {}
    for name in (SMOL, GEMMA):
        with load(name) as model:
            found[name] = model.spec
    return found


@pytest.mark.parametrize("row", [row for row in ROWS if row.command in COMMANDS], ids=lambda row: row.name)
def test_rows_are_commands_that_hold_their_length(row, specs):
    command = importlib.import_module(f"synapse_jax.cli.{row.command}")
    flags = shared.CommandFlags(row.command, "", command.define)
    flags.parse([*row.arguments[1:], "--progress=lines"])
    if row.is_scaled and row.needs_control:
        # Both engines read one file, which says how it is scaled.
        assert (
            flags.values.rope_scaling is None
            and flags.values.model == f"{row.model}-yarn-f32.gguf" == row.control
        )
        return
    profile = resolve(shared.profile_from(flags.values), specs[row.model])
    assert profile.context is not None and profile.context >= row.length
    assert (profile.rope.type == "yarn") == (row.length > specs[row.model].trained_context)


def test_there_are_all_cases_of_the_original_on_both_models():
    asked = {(row.model, row.length) for row in ROWS if row.is_table}
    assert asked == {(model, length) for model in (SMOL, GEMMA) for length in LENGTHS}
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_synthetic_tokens_are_the_same_everywhere_and_fit_the_smaller_vocabulary(specs):
    ids = synthetic(5000)
    assert ids[:4] == synthetic(4) and 256 <= min(ids) < max(ids) < specs[SMOL].vocab_size
    assert len(set(ids)) > 4500


def record(answers, **result):
    return {
        "tokens": {"evaluated_count": 131072},
        "timings": {
            "load_s": 1,
            "compile_s": 2,
            "eval_s": 3.25,
            "tokens_per_second": 9.5,
            "resumed_chunks": 0,
        },
        "memory": {"peak_rss_bytes": 3_210_000_000, "kv_allocated_bytes": 923_271_168},
        "result": {"text": answers, **result},
    }


def test_the_table_counts_what_was_found(monkeypatch, tmp_path):
    cell = dict(task="needle", length=4096, cases=1, right=1, mixed=0, partial=0, score=1.0, identical=1)
    cells = [cell, {**cell, "right": 0, "mixed": 1}, {**cell, "right": 0, "score": 0.0, "identical": 0}]
    cells.append({**cell, "task": "tracking", "right": 0, "partial": 1, "score": 0.4, "identical": None})
    case = {"task": "needle", "depth": 0.5, "ours": {"text": "a | `b`\n"}, "failed": True}
    alone = {"cells": cells, "cases": [case], "samples": 1, "agreement": None}
    quality, speed = quality_row(SMOL, 4096), speed_row(GEMMA, 131072)
    records = {quality: record("", **alone), speed: record("x" * 99)}
    monkeypatch.setattr(quality_runs, "read", lambda row, folder: records.get(row))
    lines = table(list(ROWS), tmp_path).splitlines()
    assert lines[0] == "| model, task | 4,096 | 8,192 | 16,384 | 32,768 | all |"
    two = "2 of 3, as the control 2 of 3"
    assert lines[2] == f"| {SMOL}, needle | {two} |  |  |  | {two} |"
    assert lines[3] == f"| {SMOL}, tracking | 0 of 1 (names 40 %) |  |  |  | 0 of 1 (names 40 %) |"
    assert lines[-2].endswith("| 131,072 | 1.0, 2.0, 3.2 | 9.5 | 3.21 | 923.3 | needle 0.5: `a \\| 'b'\\n` |")
    assert lines[-1].startswith(f"| {GEMMA}-speed-131072 |") and lines[-1].count("x") == 40
    assert len(TASKS) == 3 and ANSWER_TOKENS == 16
    told = {"cases": 2, "identical": 1, "failed": 1, "control_failed_the_same_way": 0}
    records = {quality: record("", **{**alone, "cases": [case, {**case, "failed": False}], "samples": 2})}
    records[quality]["result"]["agreement"] = told
    line = table(list(ROWS), tmp_path).splitlines()[-1]
    assert line.endswith("| 1 of 2 right; 1 of 2 as the control; of 1 failed 0 like the control |")
