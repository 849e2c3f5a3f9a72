"""`synapse.record/1`: every field, for every command."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re

import pytest

import synapse_jax as sj
from synapse_jax.spec.digest import sha256_tokens
from tests.e2e.conftest import CONTEXT

IDS = [1, 2, 3, 4, 5, 6, 7, 8]
GIVEN = {
    "score": ["--tokens", "1 2 3 4 5 6 7 8", "--context", 4],
    "generate": ["--tokens", "1 2 3 4 5 6 7 8", "--max-new-tokens", 1],
    "tokenize": ["--prompt", "hear the rain"],
    "inspect": [],
    "graph list": [],
    "graph show": ["--rows", 32],
}
HEX = re.compile(r"[0-9a-f]{64}")
MEMORY = [
    *("kv_allocated_bytes", "kv_live_bytes", "kv_positions"),
    *("kv_capacity", "kv_snapshots", "peak_rss_bytes"),
]
TOP = [
    *("schema", "command", "arguments", "model", "runtime", "fingerprints", "tokens"),
    *("device", "versions", "timings", "memory", "result"),
]
WITHOUT = {
    "score": set(),
    "generate": set(),
    "tokenize": {"arguments", "runtime", "fingerprints", "device", "timings"},
    "inspect": {"arguments", "runtime", "fingerprints", "device", "timings", "tokens"},
    "graph list": {"arguments", "timings", "tokens"},
    "graph show": {"arguments", "timings", "tokens"},
}
RESULT = {
    "score": {
        *("perplexity", "perplexity_error", "mean_nll", "scored_tokens", "n_ctx", "protocol", "chunks"),
        *("dropped_trailing_newline", "scoring_rows"),
    },
    "generate": {
        *("text", "token_ids", "finish_reason", "prompt_tokens"),
        *("reused_tokens", "reused_generated_tokens", "reuse_note"),
    },
    "tokenize": {"token_ids"},
    "inspect": {
        *("format", "gguf_version", "spec", "tokenizer", "tensors", "tensor_bytes", "types", "shapes"),
        *("metadata", "problems"),
    },
    "graph list": {"entries"},
    "graph show": {
        *("entry", "ir", "profile_text", "arguments", "identities"),
        *("rope_tables", "attention", "cost", "compiled", "stablehlo", "hlo"),
    },
}


def run(synapse, tiny, command, *more):
    return synapse(*command.split(), "--model", tiny, *GIVEN[command], *more)


@pytest.mark.parametrize("command", GIVEN)
def test_record_has_every_field(synapse, tiny, command):
    record = run(synapse, tiny, command, "--json").record
    assert list(record) == TOP
    assert (record["schema"], record["command"]) == ("synapse.record/1", command)
    assert {name for name in TOP if record[name] is None} == WITHOUT[command]
    assert RESULT[command] <= set(record["result"])
    assert record["model"] == {
        "name": "tiny llama",
        "path": str(tiny),
        "sha256": hashlib.sha256(tiny.read_bytes()).hexdigest(),
        "arch": "llama",
    }
    assert {"python", "synapse-jax", "jax", "jaxlib", "numpy"} <= set(record["versions"])
    memory = record["memory"]
    assert list(memory) == MEMORY
    assert memory["peak_rss_bytes"] > 10**7


@pytest.mark.parametrize("command", ["score", "generate", "graph list", "graph show"])
def test_record_names_runtime_and_device(synapse, tiny, command):
    record = run(synapse, tiny, command, "--json").record
    runtime = record["runtime"]
    assert list(runtime) == [field.name for field in dataclasses.fields(sj.RuntimeProfile)]
    assert runtime["context"] == (4 if command == "score" else CONTEXT)
    assert {name: runtime[name] for name in ("precision", "kv_dtype", "attention", "page_size")} == {
        "precision": "f32",
        "kv_dtype": "f32",
        "attention": "dense",
        "page_size": 256,
    }
    assert runtime["rope"] == {
        "type": "none",
        "factor": 1.0,
        "original": CONTEXT,
        "trained_context": CONTEXT,
        "context_limit": CONTEXT,
        "base": 10000.0,
        "magnitude": 1.0,
    }
    assert record["device"]["platform"] and record["device"]["kind"]
    assert (runtime["device"], record["device"]["index"]) == ("auto", 0)
    assert run(synapse, tiny, command, "--json", "--device", "cpu:0").record["runtime"]["device"] == "cpu:0"


def test_record_names_what_the_flags_chose(synapse, tiny):
    chosen = ["--page-size", 16, "--precision", "bf16", "--context", 48]
    runtime = run(synapse, tiny, "graph show", "--json", *chosen).record["runtime"]
    assert (runtime["page_size"], runtime["precision"], runtime["context"]) == (16, "bf16", 48)


@pytest.mark.parametrize("command", ["score", "generate"])
def test_record_of_a_run_has_its_figures(synapse, tiny, command):
    record = run(synapse, tiny, command, "--json").record
    fingerprints = record["fingerprints"]
    assert HEX.fullmatch(fingerprints["profile"])
    for entry in fingerprints["entries"]:
        assert list(entry) == ["entry", "rows", "capacity", "program", "executable", "parts"]
        assert {"ir", "rope", "kv_dtype", "stablehlo", "jaxlib", "threads"} <= set(entry["parts"])
        assert HEX.fullmatch(entry["program"]) and HEX.fullmatch(entry["executable"])
    kinds = [(entry["entry"], entry["rows"], entry["capacity"]) for entry in fingerprints["entries"]]
    assert kinds == [("step", 32, 256)] if command == "score" else [("decode", 1, 256), ("step", 32, 256)]
    tokens, timings, memory = record["tokens"], record["timings"], record["memory"]
    assert tokens == {
        "count": 8,
        "sha256": sha256_tokens(IDS),
        "evaluated_count": 8,
        "evaluated_sha256": sha256_tokens(IDS),
    }
    assert list(timings) == ["load_s", "compile_s", "eval_s", "tokens_per_second", "resumed_chunks", "graphs"]
    graphs = timings.pop("graphs")
    assert [(graph["entry"], graph["rows"], graph["capacity"]) for graph in graphs] == kinds
    assert all(graph["cache"] == "off" and graph["compile_s"] > 0 for graph in graphs)
    assert timings.pop("resumed_chunks") == (0 if command == "score" else None)
    assert min(timings.values()) >= 0
    assert timings["tokens_per_second"] == pytest.approx(8 / timings["eval_s"])
    # K and V of 2 layers, 2 heads of 32 float32: 1,024 bytes a position, of which 256 are allocated.
    assert memory["kv_allocated_bytes"] == 256 * 1024
    assert memory["kv_positions"] == (3 if command == "score" else 8)
    assert memory["kv_live_bytes"] == memory["kv_positions"] * 1024
    assert (memory["kv_capacity"], memory["kv_snapshots"]) == (256, [])


def test_record_of_a_command_without_a_run(synapse, tiny):
    tokens = run(synapse, tiny, "tokenize", "--json").record["tokens"]
    with sj.load(tiny) as model:
        ids = model.tokenizer.encode("hear the rain")
    assert tokens == {
        "count": len(ids),
        "sha256": sha256_tokens(ids),
        "evaluated_count": None,
        "evaluated_sha256": None,
    }
    memory = run(synapse, tiny, "inspect", "--json").record["memory"]
    assert [memory[name] for name in memory if name != "peak_rss_bytes"] == [None] * 5


def test_graph_list_names_the_graphs_that_a_run_uses(synapse, tiny):
    used = run(synapse, tiny, "generate", "--json", "--max-new-tokens", 3).record["fingerprints"]
    listed = run(synapse, tiny, "graph list", "--json").record
    assert listed["fingerprints"]["profile"] == used["profile"]
    entries = {(entry["entry"], entry["rows"]): entry for entry in listed["fingerprints"]["entries"]}
    assert listed["result"]["entries"] == listed["fingerprints"]["entries"]
    assert len(used["entries"]) == 2
    for entry in used["entries"]:
        assert entries[entry["entry"], entry["rows"]] == {**entry, "compiled": True, "cached": False}


@pytest.mark.parametrize("command", GIVEN)
def test_output_is_the_record(synapse, tiny, tmp_path, command):
    path = tmp_path / "record.json"
    path.write_text("what was there before")
    printed = run(synapse, tiny, command, "--json", "--output", path)
    assert path.read_text() == printed.out and printed.record
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()
    table = run(synapse, tiny, command, "--output", path)
    assert table.code == 0 and not table.out.startswith("{")
    assert json.loads(path.read_text())["command"] == command
    assert list(tmp_path.iterdir()) == [path]


def test_failure_leaves_what_was_there(synapse, tiny, tmp_path):
    path = tmp_path / "record.json"
    path.write_text("before")
    assert synapse("score", "--model", tiny, "--tokens", "1", "--context", 4, "--output", path).refusal
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_output_through_a_link_and_to_a_device(synapse, tiny, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    run(synapse, tiny, "tokenize", "--output", link)
    assert link.is_symlink() and json.loads(target.read_text())["command"] == "tokenize"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(synapse, tiny, "tokenize", "--output", pipe).code == 0
        assert json.loads(os.read(reader, 1 << 16))["command"] == "tokenize"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def current_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
