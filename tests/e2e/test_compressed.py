"""Windows and compressed attention on the command line: what is read and kept is told."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import as_argument, some_ids
from tests.tiny import write_tiny

N_CTX, WINDOW, BLOCK = 320, 64, 4
IDS = some_ids(2 * N_CTX)


@pytest.fixture
def given(tmp_path) -> list[object]:
    """A model of one layer and two chunks of tokens."""
    write_tiny(tmp_path / "model.gguf", context=512, layers=1)
    return ["--model", tmp_path / "model.gguf", "--tokens", as_argument(IDS), "--page-size", 64]


def read_at(row: int, block: int) -> int:
    """Keys and pooled blocks that a row reads, counted one by one."""
    blocks = [i for i in range(row) if block and (i + 1) * block <= row - WINDOW + 1]
    return len(range(max(row - WINDOW + 1, 0), row + 1)) + len(blocks)


@pytest.mark.parametrize(
    ("attention", "block"), [(f"window:{WINDOW}", 0), (f"compressed:window={WINDOW},block={BLOCK}", BLOCK)]
)
def test_score_tells_what_was_read_and_what_is_kept(synapse, given, tmp_path, attention, block):
    trace = tmp_path / "trace.jsonl"
    command = ["score", *given, "--context", N_CTX, "--json", "--attention", attention]
    record = synapse(*command, "--trace", trace).record
    rows = range(N_CTX // 2, N_CTX - 1)
    share = sum(read_at(row, block) for row in rows) / sum(row + 1 for row in rows)
    assert [record["result"]["read_share"], record["result"]["chunks"][1]["read_share"]] == [share] * 2
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [line["read_share"] for line in lines] == [read_at(row, block) / (row + 1) for row in rows] * 2
    assert record["runtime"]["attention"] == attention
    # The last row is N_CTX − 2. A cell is float32 keys and values of 2 heads of 32; a block has its sum.
    cell = 4 * 2 * 2 * 32
    live = read_at(N_CTX - 2, block) * cell + (cell if block else 0)
    assert record["memory"]["kv_live_bytes"] == live
    if block:
        assert record["memory"]["kv_allocated_bytes"] <= live + 2 * 64 * cell
    # Single rows and a comparison with dense go through the same policy.
    single = synapse(*command, "--scoring-rows", 1).record["result"]
    assert single["perplexity"] == pytest.approx(record["result"]["perplexity"], rel=1e-5)
    compared = synapse(
        "compare", "", "attention=dense", *given, "--context", N_CTX, "--attention", attention, "--json"
    )
    result = compared.record["result"]
    assert result["perplexity_a"] == pytest.approx(record["result"]["perplexity"], rel=1e-6)
    assert result["kl"]["mean"] > 0
