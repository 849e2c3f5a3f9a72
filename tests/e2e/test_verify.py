"""`score --verify`: a record is run again, and what moved has a name."""

from __future__ import annotations

import json

import pytest

from synapse_jax.evals.verify import moved
from tests.e2e.conftest import as_argument, some_ids
from tests.tiny import write_tiny

IDS = some_ids(40)


@pytest.fixture
def record(synapse, tiny, tmp_path):
    """A record in a file, of a run with flags of its own."""
    path = tmp_path / "record.json"
    given = ["--tokens", as_argument(IDS), "--context", 16, "--page-size", 32, "--chunks", 2]
    assert synapse("score", "--model", tiny, *given, "--output", path).code == 0
    return path


def changed(record, **parts):
    """The record with other values, given by their dotted name with two underscores for a dot."""
    value = json.loads(record.read_text())
    for name, new in parts.items():
        place = value
        *path, last = name.split("__")
        for key in path:
            place = place[int(key) if key.isdigit() else key]
        assert last in place
        place[last] = new
    record.write_text(json.dumps(value))


def test_a_record_that_still_holds_is_verified(synapse, record):
    verified = synapse("score", "--verify", record, "--json")
    assert verified.code == 0, verified.err
    again, first = verified.record, json.loads(record.read_text())
    assert again["result"].pop("verify") == []
    assert again["result"] == first["result"] and again["arguments"] == first["arguments"]
    assert "every part and every figure is the same" in verified.err


def test_what_moved_is_named_with_its_size(synapse, record):
    sums = json.loads(record.read_text())["result"]["chunks"][1]["nll_sum"]
    changed(
        record,
        result__perplexity=1.5,
        result__chunks__1__nll_sum=sums + 0.25,
        versions__jaxlib="0.0.1",
        fingerprints__entries__0__parts__jaxlib="0" * 64,
    )
    moved = synapse("score", "--verify", record, "--json")
    assert moved.code == 1
    changes = {change["what"]: change for change in json.loads(moved.out)["result"]["verify"]}
    assert changes["versions.jaxlib"]["then"] == "0.0.1"
    assert "fingerprints.step 32×32.jaxlib" in changes
    assert changes["result.perplexity"]["then"] == 1.5
    (chunk,) = [change for what, change in changes.items() if what.startswith("result.chunks: 1 of 2")]
    assert chunk["then"] - chunk["now"] == pytest.approx(0.25)
    assert "result.perplexity: 1.5 →" in moved.err and "(by " in moved.err


def test_another_profile_or_model_moves(synapse, record, tmp_path):
    narrow = synapse("score", "--verify", record, "--kv-dtype", "bf16")
    assert narrow.code == 1 and "runtime.kv_dtype: f32 → bf16" in narrow.err
    assert "kv_dtype" in narrow.err and "result.perplexity" in narrow.err
    write_tiny(tmp_path / "other.gguf", context=64, seed=1)
    other = synapse("score", "--verify", record, "--model", tmp_path / "other.gguf")
    assert other.code == 1 and "model.sha256" in other.err


def test_other_tokens_move(synapse, record):
    other = synapse("score", "--verify", record, "--tokens", as_argument([*IDS[:-10], *range(10)]))
    assert other.code == 1 and "tokens.sha256" in other.err


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"schema": "synapse.record/1", "command": "generate", "arguments": {}}',
        '{"schema": "synapse.record/1", "command": "score", "arguments": null}',
        '{"schema": "synapse.record/1", "command": "score", "arguments": {}}',
    ],
)
def test_files_that_are_no_record_are_refused(synapse, tmp_path, text):
    path = tmp_path / "record.json"
    path.write_text(text)
    assert "is not a record of synapse score" in synapse("score", "--verify", path).refusal


def test_records_of_unlike_shape_are_compared(record):
    """A field that one of them does not have has moved."""
    first = json.loads(record.read_text())
    second = json.loads(record.read_text())
    del second["result"]["mean_nll"]
    second["result"]["chunks"].pop()
    names = [change.what for change in moved(first, second)]
    assert names == ["result.mean_nll", "result.chunks"]
    assert moved(first, first) == []
