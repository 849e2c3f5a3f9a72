"""`synapse probe`: record, table, plot, resumption and refusals."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import synapse_jax as sj
from synapse_jax.evals.probe_plot import plot_probes
from synapse_jax.evals.probe_result import NOTE
from synapse_jax.spec.digest import sha256_tokens
from tests.e2e.conftest import as_argument, some_ids
from tests.e2e.test_record import TOP

LENGTH, BLOCKS, DEPTHS = 40, 3, [0, 7, 24, 30]
IDS = some_ids(LENGTH * BLOCKS + 5)
FIELDS = ["type", "depth", "gain", "needle_nll_recalled", "needle_nll_unseen"]


def probe(model, *more: object) -> list[object]:
    plan = ["--length", LENGTH, "--blocks", BLOCKS, "--depths", ",".join(map(str, DEPTHS))]
    return ["probe", "--model", model, "--tokens", as_argument(IDS), *plan, *more]


@pytest.fixture(scope="module")
def given(tiny) -> list[object]:
    return probe(tiny, "--seed", 4, "--json")


def test_record_of_a_probe(synapse, given, tiny):
    record = synapse(*given).record
    assert list(record) == TOP and record["command"] == "probe"
    assert all(record[name] is not None for name in TOP)
    assert record["arguments"]["depths"] == "0,7,24,30" and record["arguments"]["seed"] == 4
    result = record["result"]
    assert result["note"] == NOTE
    assert result["skipped_depths"] == [30]
    assert [list(row) for row in result["rows"]] == [FIELDS] * 3
    assert [row["depth"] for row in result["rows"]] == [at["depth"] for at in result["depths"]] == [0, 7, 24]
    assert [at["n"] for at in result["depths"]] == [3, 3, 3]
    assert result["blocks_sha256"] == sha256_tokens(IDS[:120])
    assert (result["seed"], result["plantable_ids"], result["reach"]) == (4, 8, None)
    assert (result["bos_at_block_starts"], result["dropped_trailing_newline"]) == (False, None)
    # What the record tells is enough to evaluate each sequence again, through the library.
    evaluated = []
    with sj.load(tiny) as model:
        session = sj.Session(model, ready=[])
        for trial in result["trials"]:
            block, depth = IDS[trial["block"] * LENGTH :][:LENGTH], trial["depth"]
            for planted, nll in (("needle", "recalled"), ("decoy", "unseen")):
                ids = [*block[:depth], *trial[planted], *block[depth + 8 : -8], *trial["needle"]]
                assert session.score(ids, LENGTH - 8).nll.tolist() == trial[nll]
                evaluated += ids
    assert record["tokens"] == {
        "count": 125,
        "sha256": sha256_tokens(IDS),
        "evaluated_count": 2 * 9 * LENGTH,
        "evaluated_sha256": sha256_tokens(evaluated),
    }
    of_first = [t for t in result["trials"] if t["block"] == 0]
    assert [row["gain"] for row in result["rows"]] == pytest.approx(
        [np.mean(t["unseen"]) - np.mean(t["recalled"]) for t in of_first]
    )


def test_table_says_what_it_is_not(synapse, tiny):
    finished = synapse(*probe(tiny))
    assert finished.code == 0 and NOTE in finished.out
    assert "skipped depths" in finished.out and "30: the needle would not end" in finished.out
    assert finished.out.count("nats a token") == 3
    assert "3 blocks are few" in finished.err
    assert f"probe: {2 * 9 * 39}/{2 * 9 * 39} positions" in finished.err


def test_seeds_decide_the_draws(synapse, given):
    first, again, other = (synapse(*given, *more).record["result"] for more in ([], [], ["--seed", 5]))
    assert first == again
    assert first["trials"][0]["needle"] != other["trials"][0]["needle"]
    assert first["blocks_sha256"] == other["blocks_sha256"]


def test_text_files_and_bos(synapse, tiny, tiny_bos, tmp_path):
    """BOS takes the place of a block's first token, as in scoring; at depth 0 the needle takes BOS's."""
    text = tmp_path / "text"
    text.write_text("the rain in the air " * 20 + "\n")
    more = ["--text-file", text, "--length", 40, "--blocks", 2, "--json"]
    plain = synapse("probe", "--model", tiny, *more, "--depths", "0,8").record["result"]
    assert (plain["dropped_trailing_newline"], plain["bos_at_block_starts"]) == (True, False)
    finished = synapse("probe", "--model", tiny_bos, *more, "--depths", "0,8")
    result = finished.record["result"]
    assert result["bos_at_block_starts"] and "takes the place of the block's BOS" in finished.err
    with sj.load(tiny_bos) as model:
        ids = model.tokenizer.encode(text.read_text()[:-1])
        bos = model.tokenizer.bos_id
        second = [bos, *ids[41:80]]
        trial = result["trials"][3]
        planted = [*second[:8], *trial["needle"], *second[16:-8], *trial["needle"]]
        assert (trial["block"], trial["depth"], ids[0]) == (1, 8, bos)
        assert sj.Session(model, ready=[]).score(planted, 32).nll.tolist() == trial["recalled"]
    assert "BOS" not in synapse("probe", "--model", tiny_bos, *more, "--depths", "8").err


def test_pages_are_probed_in_the_decode_role(synapse, tiny):
    policy = ["--attention", "pages:budget=0,window=4", "--page-size", 16]
    result = synapse(*probe(tiny, *policy, "--json")).record["result"]
    dense = synapse(*probe(tiny, "--page-size", 16, "--json")).record["result"]
    assert (result["step_rows"], dense["step_rows"]) == (1, 39)
    assert result["trials"][0]["needle"] == dense["trials"][0]["needle"]
    assert result["trials"][0]["recalled"] != dense["trials"][0]["recalled"]


def test_windows_gain_nothing_beyond_their_reach(synapse, tiny):
    """Two layers with a window of 4 reach 6 keys back; the needle at depth 24 ends right before the copy."""
    result = synapse(*probe(tiny, "--attention", "window:4", "--page-size", 16, "--json")).record["result"]
    assert result["reach"] == {"one_layer": 3, "stacked": 6}
    gains = {row["depth"]: row["gain"] for row in result["rows"]}
    assert gains[0] == gains[7] == 0 and gains[24] != 0
    pooled = ["--attention", "compressed:window=4,block=4", "--page-size", 16]
    result = synapse(*probe(tiny, *pooled, "--json")).record["result"]
    assert result["reach"] == {"one_layer": 3, "stacked": 6}
    assert all(row["gain"] != 0 for row in result["rows"])


def test_a_run_that_was_cut_goes_on_to_the_same_bits(synapse, given, tmp_path):
    whole, path = synapse(*given).record["result"], tmp_path / "checkpoint"
    assert synapse(*given, "--checkpoint", path).record["result"] == whole
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 9
    path.write_text("".join(lines[:5]) + lines[5][:30])
    resumed = synapse(*given, "--checkpoint", path, "--resume").record
    assert (resumed["result"], resumed["timings"]["resumed_chunks"]) == (whole, 4)
    assert path.read_text() == "".join(lines)
    again = synapse(*given, "--checkpoint", path, "--resume").record
    assert (again["result"], again["timings"]["resumed_chunks"]) == (whole, 9)
    assert "--resume goes on with it" in synapse(*given, "--checkpoint", path).refusal
    for changed, name in [
        (["--seed", 5], "plan.seed"),
        (["--depths", "0,7"], "plan.depths"),
        (["--blocks", 2], "plan.blocks"),
        (["--length", 30], "plan.length"),
        (["--tokens", as_argument([*IDS[:50], 2, *IDS[51:]])], "tokens.evaluated_sha256"),
        (["--kv-dtype", "bf16"], "profile.kv_dtype"),
    ]:
        refused = synapse(*given, "--checkpoint", path, "--resume", *changed)
        assert name in refused.refusal and "is of another run" in refused.refusal
    score = ["score", *given[1:5], "--context", 40, "--checkpoint", path, "--resume"]
    assert "is of another run: command" in synapse(*score).error


def test_plots(synapse, given, tmp_path):
    path = tmp_path / "probe.png"
    assert synapse(*given, "--plot", path).code == 0
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_several_records_in_one_plot(synapse, given, tmp_path):
    """The lines, bands and marks that are drawn, and the note."""
    from matplotlib.figure import Figure

    record = synapse(*given).record
    windowed = json.loads(json.dumps(record))
    windowed["result"]["reach"] = {"one_layer": 10, "stacked": 40}
    one_block = json.loads(json.dumps(record))
    for at in one_block["result"]["depths"]:
        at["gain"] |= {"low": None, "high": None}
    saved = []
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: saved.append(figure))
    with monkeypatch.context(), warnings.catch_warnings():
        plot_probes({"full $": record, "window": windowed, "one": one_block}, str(tmp_path / "x.png"))
    monkeypatch.undo()
    (axes,) = saved[0].axes
    assert "not the long-context needle test" in axes.get_title().replace("\n", " ")
    lines = {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}
    assert list(lines) == [
        "full $",
        "window (reach of all layers covers the block)",
        "window: reach of one layer, 10",
        "one",
    ]
    assert lines["full $"].get_xdata().tolist() == [0, 7, 24]
    gains = [at["gain"]["mean"] for at in record["result"]["depths"]]
    assert lines["full $"].get_ydata().tolist() == gains
    # The mark is at L − 16 − reach.
    assert list(lines["window: reach of one layer, 10"].get_xdata()) == [14, 14]
    bands = [band.get_datalim(axes.transData) for band in axes.collections]
    assert len(bands) == 2
    assert bands[0].y0 == pytest.approx(min(at["gain"]["low"] for at in record["result"]["depths"]))
    assert bands[0].y1 == pytest.approx(max(at["gain"]["high"] for at in record["result"]["depths"]))


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--blocks", 4], "4 blocks of 40 tokens need 160 tokens, there are 125"),
        (["--length", 15], "length 15"),
        (["--length", 65], "length 65 is above the context of 64"),
        (["--context", 32], "length 40 is above the context of 32"),
        (["--context", 65], "context 65"),
        (["--blocks", 0], "blocks 0"),
        (["--seed", -1], "seed -1"),
        (["--depths", "x"], "'x' is not a token index"),
        (["--depths", "7,7"], "7 is there twice"),
        (["--depths", "25,30"], "no depth of 25, 30 is at most 24"),
        (["--resume"], "--resume goes with --checkpoint"),
        (["--text-file", "x"], "--text-file and --tokens are given"),
        (["--plot", "probe.gif"], "a plot ends in"),
        (["--plot", "same.png", "--output", "./same.png"], "--output and --plot are both"),
        (["--tokens", as_argument([*IDS[:-1], 288])], "outside the vocabulary of 288"),
        (["--attention", "pages:budget=7,window=4"], "budget 7"),
    ],
)
def test_what_cannot_be_probed_is_refused(synapse, given, more, named):
    refused = synapse(*given, *more)
    assert named in refused.refusal
