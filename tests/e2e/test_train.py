"""`synapse train` from texts to a model that the other commands run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from synapse_jax.io.gguf import open_gguf
from synapse_jax.train.log import read_log

SIZES = (
    *("--vocabulary", 384, "--width", 16, "--layers", 1, "--query-heads", 2, "--head-size", 8),
    *("--ffn-width", 24, "--length", 32, "--batch", 2, "--attention", "compressed:window=8,block=4"),
)
RUN = (
    *SIZES,
    *("--tokens", 500, "--optimizer", "adamw", "--repeat-share", 0.2, "--repeat-length", 8, "--seed", 3),
    *("--held-out-windows", 3, "--look-windows", 2, "--looks", 2, "--checkpoint-every", 0),
)


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """A folder of small texts, of which some are held out."""
    folder = tmp_path_factory.mktemp("texts")
    random = np.random.RandomState(0)
    words = ["".join(random.choice(list("abcdefghij"), 4)) for _ in range(80)]
    for number in range(60):
        (folder / f"{number}.txt").write_text(" ".join(random.choice(words, 60)) + "\n")
    return folder


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def test_it_leaves_a_model_that_other_commands_run(synapse, texts, tmp_path):
    folder = tmp_path / "run"
    finished = synapse("train", "--texts", texts, "--output", folder, *RUN, "--json")
    record = finished.record
    assert "step 8 of 8" in finished.err and "tokens/s" in finished.err
    assert {path.name for path in folder.iterdir()} == {
        *("plan.json", "log.jsonl", "checkpoints", "model.gguf", "loss.png", "record.json")
    }
    assert json.loads((folder / "record.json").read_text()) == record
    result = record["result"]
    assert (record["schema"], record["command"]) == ("synapse.record/1", "train")
    assert record["arguments"]["texts"] == str(texts) and "output" not in record["arguments"]
    assert (result["steps"], result["tokens"], result["resumed_steps"]) == (8, 512, 0)
    assert record["tokens"]["count"] == result["corpus"]["train_tokens"]
    assert record["model"]["arch"] == "synapse"
    assert record["runtime"]["attention"] == result["shape"]["attention"] == "compressed:window=8,block=4"
    assert result["plan"]["repeat_share"] == 0.2 and record["fingerprints"]["profile"]
    lines = read_log(folder / "log.jsonl")
    assert [line.step for line in lines] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]

    with open_gguf(folder / "model.gguf") as file:
        facts = dict(file.metadata)
    assert facts["synapse.training.plan_sha256"] == result["plan_sha256"]
    assert facts["synapse.training.held_out_loss"] == result["held_out_loss"]
    assert facts["synapse.training.corpus_sha256"] == result["corpus"]["sha256"]

    scored = synapse(
        *("score", "--model", folder / "model.gguf", "--context", 32, "--chunks", 1, "--score-last", 8),
        *("--tokens", " ".join(map(str, range(100, 164))), "--json"),
    ).record
    assert scored["fingerprints"]["profile"] == record["fingerprints"]["profile"]
    assert scored["model"]["sha256"] == record["model"]["sha256"]

    again = synapse("train", "--texts", texts, "--output", folder, *RUN)
    assert "log.jsonl: is there already; --resume goes on with it" in again.error and again.code == 2
    resumed = synapse("train", "--texts", texts, "--output", folder, *RUN, "--resume", "--json").record
    assert resumed["result"]["resumed_steps"] == 8
    assert resumed["result"]["weights_sha256"] == result["weights_sha256"]
    assert resumed["model"]["sha256"] == record["model"]["sha256"]
    assert resumed["timings"]["tokens_per_second"] is None
    other = synapse("train", "--texts", texts, "--output", folder, *RUN, "--resume", "--clip", 2)
    assert other.code == 2 and "is of another run: plan.clip (1.0, now 2.0)" in other.error
    assert "held-out loss" in synapse("train", "--texts", texts, "--output", folder, *RUN, "--resume").out


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((), "--output is needed"),
        (("--output", "run"), "--tokens is needed"),
        (("--output", "run", "--tokens", 0), "tokens 0 is not an integer from 1 up"),
        (("--output", "run", "--tokens", 9, "--optimizer", "sgd"), "'sgd' is not one of adamw, muon"),
        (("--output", "run", "--tokens", 9, "--attention", "pages:budget=64,window=8"), "decoded tokens"),
        (("--output", "run", "--tokens", 9, "--kv-heads", 3), "kv_heads"),
        (("--output", "run", "--tokens", 9, "--looks", 0), "looks 0"),
        (("--output", "run", "--tokens", 9, "--texts", "nowhere"), "nowhere: is not a folder"),
    ],
)
def test_bad_usage_is_one_line_and_leaves_nothing(synapse, tmp_path, monkeypatch, given, named):
    monkeypatch.chdir(tmp_path)
    assert named in synapse("train", *given).refusal
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_is_refused(synapse, texts, tmp_path):
    (tmp_path / "file").write_text("")
    finished = synapse("train", "--texts", texts, "--output", tmp_path / "file" / "run", *RUN)
    assert finished.code == 2 and "file/run: cannot be used as a folder" in finished.error
