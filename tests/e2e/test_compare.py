"""`synapse compare`: records and live configurations, refusals, table and plot."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.e2e.conftest import as_argument, some_ids
from tests.tiny import write_tiny

IDS = some_ids(60)


@pytest.fixture
def given(tiny) -> list[object]:
    return ["--model", tiny, "--tokens", as_argument(IDS), "--context", 20, "--page-size", 16]


def test_figures_are_those_of_two_scoring_runs(synapse, given):
    compared = synapse("compare", "", "kv-dtype=bf16", *given, "--json").record["result"]
    a = synapse("score", *given, "--json").record["result"]
    b = synapse("score", *given, "--kv-dtype", "bf16", "--json").record["result"]
    assert compared["positions"] == a["scored_tokens"]
    assert compared["perplexity_a"] == pytest.approx(a["perplexity"], rel=1e-6)
    assert compared["perplexity_b"] == pytest.approx(b["perplexity"], rel=1e-6)
    assert compared["perplexity_ratio"] == pytest.approx(b["perplexity"] / a["perplexity"], rel=1e-6)
    assert 0 < compared["kl"]["mean"] < 0.1 and compared["kl"]["min"] >= -1e-12
    assert (compared["a"]["runtime"]["kv_dtype"], compared["b"]["runtime"]["kv_dtype"]) == ("f32", "bf16")
    assert compared["a"]["profile"] != compared["b"]["profile"]


def test_the_worst_positions_are_told_with_their_text(synapse, given, tmp_path):
    trace = {name: tmp_path / name for name in ("f32", "bf16")}
    for name, path in trace.items():
        assert synapse("score", *given, "--kv-dtype", name, "--trace", path).code == 0
    nll = {
        name: {(t["chunk"], t["position"]): t["nll"] for t in map(json.loads, path.read_text().splitlines())}
        for name, path in trace.items()
    }
    worst = synapse("compare", "", "kv-dtype=bf16", *given, "--worst", 4, "--json").record["result"]["worst"]
    changes = sorted((abs(nll["bf16"][at] - nll["f32"][at]) for at in nll["f32"]), reverse=True)
    assert [abs(w["nll_b"] - w["nll_a"]) for w in worst] == pytest.approx(changes[:4], abs=1e-5)
    for place in worst:
        assert place["token"] == IDS[place["chunk"] * 20 + place["position"]]
        assert nll["f32"][place["chunk"], place["position"]] == pytest.approx(place["nll_a"], abs=1e-5)


def test_a_configuration_is_no_distance_from_itself(synapse, given):
    result = synapse("compare", "", "", *given, "--json").record["result"]
    assert result["kl"]["max"] == result["kl"]["min"] == 0
    assert (result["perplexity_ratio"], result["same_top"], result["worst"]) == (1.0, 1.0, [])


def test_records_are_run_again(synapse, given, tmp_path):
    """Two records against each other, and one against a live change of it."""
    records = {name: tmp_path / f"{name}.json" for name in ("f32", "f16")}
    for name, path in records.items():
        assert synapse("score", *given, "--kv-dtype", name, "--output", path).code == 0
    two = synapse("compare", records["f32"], records["f16"], "--json").record["result"]
    live = synapse("compare", "", "kv-dtype=f16", *given, "--json").record["result"]
    assert two["kl"] == live["kl"] and two["delta_nll"] == live["delta_nll"]
    assert two["a"]["given"] == str(records["f32"])


def test_precision_rope_and_models_compare(synapse, given, tiny, tmp_path):
    write_tiny(tmp_path / "other.gguf", context=64, seed=1)
    for change in (
        "precision=bf16",
        "rope-scaling=linear:2",
        f"model={tmp_path / 'other.gguf'}",
        "page-size=32",
    ):
        result = synapse("compare", "", change, *given, "--json").record["result"]
        # Pages are blocks of the softmax: another size moves bits, not figures.
        assert (result["kl"]["mean"] > 1e-6) == (change != "page-size=32"), change


def test_other_tokens_are_refused_with_both_counts(synapse, given, tiny, tmp_path):
    paths = []
    for count, name in ((60, "a"), (59, "b"), (60, "c")):
        path = tmp_path / f"{name}.json"
        ids = IDS[:count] if name != "c" else [*IDS[:30], 1 + IDS[30] % 200, *IDS[31:]]
        assert synapse("score", "--model", tiny, "--tokens", as_argument(ids), "--context", 20,
                       "--chunks", 2, "--output", path).code == 0  # fmt: skip
        paths.append(path)
    one_less = synapse("compare", paths[0], paths[1])
    assert one_less.code == 2 and "different tokens, 60 and 59: one is the beginning" in one_less.error
    other = synapse("compare", paths[0], paths[2])
    assert other.code == 2 and "token 30 differs" in other.error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "A is missing"),
        ([""], "B is missing"),
        (["", "nonsense"], "is neither a record nor changed flags"),
        (["", "nonsense=1"], "there is no flag"),
        (["", "kv-dtype=f8"], "kv-dtype"),
        (["", "scoring-rows=1"], "compare has no use for --scoring-rows"),
        (["", "checkpoint=x"], "compare has no use for --checkpoint"),
        (["", "it's.json"], "is neither a record nor changed flags"),
        (["rope-scaling=linear:2", "--control", "llama.cpp:x"], "linear:2 would not reach"),
        (["", "--control", "command:it's"], "is no command line"),
        (["", "context=10"], "the two sides score"),
        (["", "", "--plot", "x.gif"], "a plot ends in .png"),
        (["", "", "--plot", "/no/such/folder/x.png"], "folder does not exist"),
        (["", "", ""], "is not a flag"),
    ],
)
def test_bad_usage_is_one_line(synapse, given, words, message):
    assert message in synapse("compare", *words, *given).refusal


def test_a_record_whose_files_have_changed_is_refused(synapse, given, tmp_path):
    path, record = tmp_path / "own.gguf", tmp_path / "record.json"
    tokens = tmp_path / "tokens"
    write_tiny(path, context=64)
    tokens.write_text(as_argument(IDS))
    own = ["--model", path, "--tokens-file", tokens, "--context", 20, "--page-size", 16]
    assert synapse("score", *own, "--output", record).code == 0
    assert synapse("compare", record, record).code == 0
    tokens.write_text(as_argument([*IDS[:-1], 1 if IDS[-1] != 1 else 2]))
    assert "is of tokens of sha256" in synapse("compare", record, record).refusal
    tokens.write_text(as_argument(IDS))
    write_tiny(path, context=64, seed=1)
    assert "is of a model of sha256" in synapse("compare", record, record).refusal


def test_table_and_plot(synapse, given, tmp_path):
    plot = tmp_path / "plot.png"
    shown = synapse("compare", "", "kv-dtype=bf16", *given, "--plot", plot)
    assert shown.code == 0, shown.err
    for name in ("ratio B/A", "KL(A‖B)", "KL percentiles", "same top token", "Δp", "ΔNLL", "chunk "):
        assert name in shown.out
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 10_000


def test_blocks_hold_the_logits_of_every_position(tiny):
    import synapse_jax as sj

    with sj.load(tiny) as model:
        session = sj.Session(model, ready=[])
        whole = session.logits(IDS)
        for rows, start in ((32, 1), (64, 5), (128, 59)):
            blocks = list(session.logit_blocks(IDS, start, rows=rows))
            assert [first for first, _ in blocks] == list(range(start, 60, rows))
            assert np.array_equal(np.concatenate([b for _, b in blocks]), whole[start - 1 : -1])
        with pytest.raises(sj.InputError, match="start 60 is not a position from 1 to 59"):
            next(iter(session.logit_blocks(IDS, 60)))
