"""The cache of graphs and late compilations, through the command line (cases 37 and 38)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from synapse_jax.graph import store
from synapse_jax.runtime.entries import GUARD
from tests.e2e.conftest import as_argument, some_ids

TOKENS = as_argument(some_ids(60))


def start(folder, model, *words, context=64):
    command = [sys.executable, "-m", "synapse_jax", *words, "--model", str(model), "--json"]
    environment = {**os.environ, store.VARIABLE: str(folder)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out), [line for line in err.splitlines() if "warning" in line]


def score(folder, model):
    return start(folder, model, "score", "--tokens", TOKENS, "--context", "30", "--progress", "none")


def entries(record):
    return [graph["cache"] for graph in record["timings"]["graphs"]]


def test_processes_share_graphs_and_survive_what_happens_to_them(tiny, tmp_path):
    """Two at once, then a warm one, then one whose files are all damaged."""
    folder = tmp_path / "graphs"
    records, warnings = zip(*map(finish, [score(folder, tiny), score(folder, tiny)]), strict=True)
    assert all(not lines for lines in warnings)
    warm, said = finish(score(folder, tiny))
    assert entries(warm) == ["hit"] or said  # or the host has refused it, and says so
    assert warm["timings"]["compile_s"] >= warm["timings"]["graphs"][0]["compile_s"] > 0
    for index, path in enumerate(sorted(folder.iterdir())):
        path.write_bytes(os.urandom(3000) if index % 2 else path.read_bytes()[:1000])
    damaged, said = finish(score(folder, tiny))
    assert entries(damaged) == ["miss"] and len(said) == 1
    results = [record["result"] for record in (*records, warm, damaged)]
    assert all(result == results[0] for result in results)
    # Nothing half-written stays.
    assert all(path.suffix == ".graph" for path in folder.iterdir())


def test_a_folder_that_cannot_be_made_costs_one_warning(tiny, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    record, said = finish(score(tmp_path / "file" / "graphs", tiny))
    assert entries(record) == ["miss"] and len(said) == 1
    assert said[0].startswith("synapse: warning: graph cache: ") and store.VARIABLE in said[0]


def test_precompiled_graphs_are_what_a_session_uses(tiny, tmp_path):
    folder = tmp_path / "graphs"
    words = ["graph", "precompile", "--context", "30", "--entries", "step:32", "--progress", "none"]
    record, _ = finish(start(folder, tiny, *words))
    assert entries(record) == ["miss"] and record["result"]["folder"] == str(folder)
    (file,) = folder.iterdir()
    used, said = finish(score(folder, tiny))
    assert entries(used) == ["hit"] or said
    assert [entry["executable"] for entry in used["fingerprints"]["entries"]] == [
        entry["executable"] for entry in record["fingerprints"]["entries"]
    ]
    assert [path.name for path in folder.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--entries", "step"], "--entries: 'step' is no entry with its rows"),
        (["--entries", "step:33"], "33 rows are not on the row ladder"),
        (["--entries", "stop:32"], "there is no entry 'stop'"),
        (["--positions", "65"], "--positions 65 is above the context of 64"),
    ],
)
def test_entries_that_are_none_are_refused(synapse, tiny, tmp_path, monkeypatch, words, message):
    monkeypatch.setenv(store.VARIABLE, str(tmp_path))
    assert message in synapse("graph", "precompile", "--model", tiny, *words).refusal
    assert not list(tmp_path.iterdir())


def test_precompiling_needs_a_cache(synapse, tiny):
    assert f"{store.VARIABLE} is off" in synapse("graph", "precompile", "--model", tiny).refusal


PROMPTS = [some_ids(20), [*some_ids(18), 7, 9], some_ids(40), some_ids(3)]
SCORE = ("score", "--tokens", TOKENS, "--context", "60", "--score-last", "20")
PAGED = ("--page-size", "16", "--attention")
POLICIES = {
    "dense": (),
    "window": (*PAGED, "window:20"),
    "compressed": (*PAGED, "compressed:window=16,block=4"),
}
COMMANDS = {
    "score": SCORE,
    "score in small steps": (*SCORE, "--scoring-rows", "32"),
    "score one by one": (*SCORE, "--scoring-rows", "1"),
    "score decoded tokens": (*SCORE, "--scoring-rows", "1", *PAGED, "pages:budget=16,window=16"),
    "generate": ("generate", "--tokens", TOKENS, "--max-new-tokens", "4"),
    "generate nothing": ("generate", "--tokens", TOKENS, "--max-new-tokens", "0"),
    "generate with logprobs": ("generate", "--tokens", TOKENS, "--max-new-tokens", "4", "--logprobs"),
    "sample": ("generate", "--tokens", TOKENS, "--max-new-tokens", "4", "--temperature", "1"),
    "compare": ("compare", "", "kv-dtype=bf16", *SCORE[1:]),
    "compare decoded tokens": ("compare", "", "attention=pages:budget=16,window=16 page-size=16", *SCORE[1:]),
    "compare small pages": (
        "compare",
        "",
        "attention=compressed:window=16,block=4 page-size=16",
        *(*SCORE[1:-1], "50"),  # blocks of more rows than a step has
    ),
    "probe": ("probe", "--tokens", TOKENS, "--length", "60", "--depths", "0,16", "--blocks", "1"),
}
CASES = [(name, "dense") for name in COMMANDS] + [
    (name, policy) for name in ("score", "generate", "sample") for policy in POLICIES if policy != "dense"
]


@pytest.mark.parametrize(("name", "policy"), CASES)
def test_no_command_compiles_late(synapse, tiny, monkeypatch, name, policy):
    monkeypatch.setenv(GUARD, "raise")
    record = synapse(*COMMANDS[name], *POLICIES[policy], "--model", tiny, "--json").record
    assert record["timings"]["compile_s"] > 0
    for graph in record["timings"]["graphs"] or []:  # `compare` has two sessions
        assert graph["cache"] == "off" and graph["compile_s"] > 0 and graph["lower_s"] > 0


def test_prompts_that_reuse_compile_nothing_late(synapse, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv(GUARD, "raise")
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"tokens": ids}) + "\n" for ids in PROMPTS))
    words = ["--prompts-file", path, "--reuse-prefix", "--max-new-tokens", "5", "--json"]
    record = synapse("generate", "--model", tiny, *words).record
    assert sum(prompt["reused_tokens"] for prompt in record["result"]["prompts"]) > 0
