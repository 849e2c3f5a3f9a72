"""Page activation on the command line: what is read is told, and what it cannot do is refused."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import as_argument, some_ids
from tests.tiny import write_tiny

IDS = some_ids(640)
N_CTX, LAST = 320, 100
BUDGET, PAGE, WINDOW, SINK = 32, 16, 40, 1
POLICY = f"pages:budget={BUDGET},window={WINDOW}"


@pytest.fixture
def given(tmp_path) -> list[object]:
    """A model and two chunks of tokens."""
    write_tiny(tmp_path / "model.gguf", context=512, layers=1)
    return ["--model", tmp_path / "model.gguf", "--tokens", as_argument(IDS), "--page-size", 64]


def score(given, *more) -> list[object]:
    protocol = ["--context", N_CTX, "--score-last", LAST, "--attention", POLICY, "--scoring-rows", 1]
    return ["score", *given, *protocol, "--json", *more]


def read_at(row: int) -> int:
    """Positions that a row reads, counted one by one: those of the sink page, of pages that hold one of the
    last 40 positions, and of two pages more."""
    pages = [[p for p in range(first, first + PAGE) if p <= row] for first in range(0, row + 1, PAGE)]
    always = [u for u, page in enumerate(pages) if u < SINK or page[-1] > row - WINDOW]
    rest = [u for u in range(len(pages)) if u not in always]
    return sum(len(pages[u]) for u in always) + BUDGET // PAGE * PAGE * (len(rest) > 0)


def test_score_tells_what_was_read(synapse, given, tmp_path):
    trace = tmp_path / "trace.jsonl"
    record = synapse(*score(given, "--trace", trace)).record
    rows = range(N_CTX - LAST - 1, N_CTX - 1)
    # Far from every edge: a sink page, two of the budget, and three or four that the window overlaps.
    assert {read_at(row) for row in rows} <= set(range(3 * PAGE + WINDOW, 3 * PAGE + WINDOW + PAGE))
    share = sum(map(read_at, rows)) / sum(row + 1 for row in rows)
    assert 0.3 < share < 0.4
    result = record["result"]
    assert [result["read_share"], *(chunk["read_share"] for chunk in result["chunks"])] == [share] * 3
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [line["read_share"] for line in lines] == [read_at(row) / (row + 1) for row in rows] * 2
    canonical = "pages:budget=32,page=16,window=40,sink=1,select=bound,heads=kv,dense_layers=none"
    assert record["runtime"]["attention"] == canonical
    assert {entry["entry"] for entry in record["fingerprints"]["entries"]} == {"decode", "step"}
    # A pool of 1,024 … 320 positions and, beside it, two numbers a dimension for every 16 of them.
    cells, heads = 320 * 2, 2 * 32
    assert record["memory"]["kv_allocated_bytes"] == 4 * heads * (cells + 2 * 320 // 16)

    dense = synapse(*score(given, "--attention", "dense", "--trace", trace)).record["result"]
    assert dense["perplexity"] != result["perplexity"]
    assert dense["read_share"] is None and dense["chunks"][0]["read_share"] is None
    assert "read_share" not in trace.read_text()


def test_a_run_is_resumed_and_verified(synapse, given, tmp_path):
    whole, path = synapse(*score(given, "--output", tmp_path / "record.json")).record, tmp_path / "checkpoint"
    assert synapse(*score(given, "--checkpoint", path)).record["result"] == whole["result"]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]))
    resumed = synapse(*score(given, "--checkpoint", path, "--resume")).record
    assert resumed["timings"]["resumed_chunks"] == 1 and resumed["result"] == whole["result"]
    verified = synapse("score", "--verify", tmp_path / "record.json", "--json").record
    assert verified["result"].pop("verify") == [] and verified["result"] == whole["result"]
    other = score(given, "--checkpoint", path, "--resume", "--attention", POLICY + ",sink=2")
    assert "is of another run: profile.attention, profile.ir differ" in synapse(*other).refusal


def test_policies_are_compared_in_the_decode_role(synapse, given):
    """Figures of two scoring runs; what reads everything is no distance from dense."""
    pages = synapse(*score(given)).record["result"]
    given = [*given, "--context", N_CTX, "--score-last", LAST]
    dense = synapse("score", *given, "--json").record["result"]
    result = synapse("compare", "", f"attention={POLICY}", *given, "--json").record["result"]
    assert result["perplexity_a"] == pytest.approx(dense["perplexity"], rel=1e-5)
    assert result["perplexity_b"] == pytest.approx(pages["perplexity"], rel=1e-5)
    assert abs(result["perplexity_ratio"] - 1) > 1e-4 and result["kl"]["mean"] > 1e-5
    covering = synapse("compare", "", "attention=pages:budget=512,window=1", *given, "--json").record
    assert abs(covering["result"]["kl"]["max"]) < 1e-6
    itself = [f"attention={POLICY}"] * 2
    assert synapse("compare", *itself, *given, "--json").record["result"]["kl"]["max"] == 0


def test_generated_tokens_read_pages(synapse, given):
    def generate(attention):
        more = ["--max-new-tokens", 40, "--attention", attention, "--logprobs", "--json"]
        return synapse("generate", *given[:2], "--tokens", as_argument(IDS[:300]), *given[4:], *more).record[
            "result"
        ]

    dense, covering, few = (generate(a) for a in ("dense", "pages:budget=512,window=1", POLICY))
    assert (covering["token_ids"], covering["logprobs"]) == (dense["token_ids"], dense["logprobs"])
    # The first new token comes from the prompt, which attends densely.
    assert few["logprobs"][0] == dense["logprobs"][0] and few["logprobs"] != dense["logprobs"]


def test_what_it_cannot_do_is_refused(synapse, given):
    rows = "needs --scoring-rows 1, not"
    assert f"{rows} 512" in synapse("score", *given, "--attention", POLICY).refusal
    assert f"{rows} 2" in synapse(*score(given, "--scoring-rows", 2)).refusal
    for attention, reason in {
        "pages:budget=32,window=16,page=128": "budget 32 is not a multiple of page 128",
        "pages:budget=128,window=16,page=128": "page 128 does not divide the storage page of 64",
        "pages:budget=32,window=16,dense_layers=0": "hold all 1 layers that see all keys",
        "heads:64": "choose from dense, pages, window, compressed",
    }.items():
        for command in (score(given), ["generate", *given], ["graph", "list", *given[:2], *given[4:]]):
            assert reason in synapse(*command, "--attention", attention).refusal
