"""Models that cannot be run, or that go wrong while they run."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from tests import raw_gguf
from tests.e2e.conftest import CONTEXT, as_argument, some_ids
from tests.raw_gguf import Tensor
from tests.tiny import write_tiny

MALFORMED = {
    "dimensions that wrap": (raw_gguf.build(tensors=[Tensor(dims=(2**32, 2**32))]), "tensor 'a'"),
    "a zero dimension": (raw_gguf.build(tensors=[Tensor(dims=(4, 0))]), "tensor 'a'"),
    "a million dimensions": (raw_gguf.build(tensors=[Tensor(dim_count=10**6)]), "tensor 'a'"),
    "2^62 tensors": (raw_gguf.build(tensor_count=2**62), "tensor count"),
    "2^64 - 1 keys": (raw_gguf.build(key_count=2**64 - 1), "key count"),
    "a huge array": (raw_gguf.build(keys=[raw_gguf.array_key("a.b", raw_gguf.U64, 2**61)]), "a.b"),
    "a huge string": (
        raw_gguf.build(keys=[raw_gguf.key("a.b", raw_gguf.STRING, raw_gguf.string("x", length=2**63))]),
        "a.b",
    ),
    "an offset far outside": (raw_gguf.build(tensors=[Tensor(offset=2**40)], data=bytes(128)), "tensor 'a'"),
    "no architecture": (raw_gguf.build(), "general.architecture"),
    "another magic": (raw_gguf.build(magic=b"GGML"), "GGUF"),
    "an empty file": (b"", "empty"),
}
COMMANDS = {
    "score": ["--tokens", as_argument(some_ids(64)), "--context", 32],
    "generate": ["--tokens", "1 2 3"],
    "tokenize": ["--prompt", "x"],
    "inspect": [],
    "graph list": [],
}


def run(synapse, command, path):
    return synapse(*command.split(), "--model", path, *COMMANDS[command])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_file_is_one_line_that_names_file_and_field(synapse, tmp_path, what, command):
    data, field = MALFORMED[what]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    refusal = run(synapse, command, path).refusal
    assert str(path) in refusal and field in refusal


@pytest.mark.parametrize("kept", [0.25, 0.5, 0.999])
def test_truncated_file_is_refused_before_anything_runs(synapse, tiny, tmp_path, kept):
    path = tmp_path / "cut.gguf"
    data = tiny.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    for command in COMMANDS:
        refusal = run(synapse, command, path).refusal
        assert str(path) in refusal and "truncated" in refusal


def test_truncated_real_file_is_refused(synapse, smol_path, tmp_path):
    path = tmp_path / "cut.gguf"
    shutil.copyfile(smol_path, path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 1_000_000)
    refusal = run(synapse, "score", path).refusal
    assert str(path) in refusal and "truncated" in refusal and str(size - 1_000_000) in refusal


def test_unknown_tensor_is_named_in_a_warning(synapse, tiny, tmp_path):
    path = tmp_path / "more.gguf"

    def add(metadata, tensors):
        tensors["blk.0.foo.weight"] = np.ones((4, 4), np.float32)

    write_tiny(path, context=CONTEXT, mutate=add)
    known, more = run(synapse, "score", tiny), run(synapse, "score", path)
    warnings = [line for line in more.err.splitlines() if line.startswith("synapse: warning: ")]
    assert (more.code, len(warnings)) == (0, 1)
    assert "blk.0.foo.weight" in warnings[0] and str(path) in warnings[0]
    assert "warning" not in known.err
    problems = json.loads(synapse("inspect", "--model", path, "--json").out)["result"]["problems"]
    assert len(problems) == 1 and "blk.0.foo.weight" in problems[0]


@pytest.mark.parametrize("command", ["score", "generate", "graph list"])
def test_missing_and_misshapen_tensors_are_refused(synapse, tmp_path, command):
    def missing(metadata, tensors):
        del tensors["blk.1.ffn_up.weight"]

    def misshapen(metadata, tensors):
        tensors["blk.1.ffn_up.weight"] = tensors["blk.1.ffn_up.weight"][:-1]

    for mutate, parts in ((missing, ["missing"]), (misshapen, ["95", "96", "64"])):
        path = tmp_path / "bad.gguf"
        write_tiny(path, context=CONTEXT, mutate=mutate)
        refusal = run(synapse, command, path).refusal
        assert str(path) in refusal and "blk.1.ffn_up.weight" in refusal
        assert all(part in refusal for part in parts)
        # What cannot be run can still be looked at.
        record = synapse("inspect", "--model", path, "--json").record
        assert record["result"]["spec"] is None
        assert "blk.1.ffn_up.weight" in record["result"]["problems"][0]


def test_nan_stops_a_run_at_its_position(synapse, tmp_path):
    path, output, trace = tmp_path / "nan.gguf", tmp_path / "record", tmp_path / "trace"

    def poison(metadata, tensors):
        tensors["token_embd.weight"][7, 0] = np.nan

    # Untied, so that only those who read token 7 meet the NaN.
    write_tiny(path, context=CONTEXT, tied=False, mutate=poison)
    given = ["score", "--model", path, "--context", 32, "--scoring-rows", 4, "--json", "--tokens"]
    ids = [11] * 96
    assert synapse(*given, as_argument(ids)).record["result"]["scored_tokens"] == 45
    ids[32 + 20] = 7
    finished = synapse(*given, as_argument(ids), "--output", output, "--trace", trace)
    assert (finished.code, finished.out) == (1, "")
    # Token 20 of chunk 1 is a target before it is read: position 21 is the first that it spoils.
    assert "chunk 1" in finished.error and "position 21 is nan" in finished.error
    assert list(tmp_path.iterdir()) == [path]


def test_case_44_a_comparison_stops_at_nan(synapse, tmp_path):
    path = tmp_path / "nan.gguf"

    def poison(metadata, tensors):
        tensors["token_embd.weight"][7, 0] = np.nan

    write_tiny(path, context=CONTEXT, tied=False, mutate=poison)
    ids = [11] * 64
    ids[32 + 20] = 7
    given = ["--model", path, "--context", 32, "--tokens", as_argument(ids), "--json"]
    finished = synapse("compare", "", "kv-dtype=bf16", *given)
    assert (finished.code, finished.out) == (1, "")
    # A key that is NaN spoils the rows before it in its own step too, so the step is what is named.
    assert "chunk 1: " in finished.error and "is nan, in the step that ends at position 31" in finished.error


def test_nan_is_never_a_result(synapse, tmp_path):
    path = tmp_path / "nan.gguf"

    def poison(metadata, tensors):
        tensors["blk.1.ffn_down.weight"][0, 0] = np.nan

    write_tiny(path, context=CONTEXT, mutate=poison)
    for new in (0, 1, 4):
        finished = synapse("generate", "--model", path, "--tokens", "11 7", "--max-new-tokens", new)
        assert (finished.code, finished.out) == (1, "")
        assert "position 2 is nan" in finished.error
    finished = run(synapse, "score", path)
    assert (finished.code, finished.out) == (1, "")
    assert "chunk 0" in finished.error and "position 17 is nan" in finished.error
