"""EXP-018 in small: what its runs are, what a record holds, and what the report makes of records."""

from __future__ import annotations

import copy
import json

import pytest

from synapse_jax.errors import InputError
from synapse_jax.evals.interval import mean_interval
from synapse_jax.train import experiment as experiments
from synapse_jax.train.experiment import Experiment, Texts, judge, train_decoder
from synapse_jax.train.experiment_report import plot_gains, plot_losses, table, verdict
from synapse_jax.train.loop import Splits
from synapse_jax.train.plan import TrainingPlan
from synapse_jax.train.shape import DecoderShape
from synapse_jax.train.tokens import token_stream
from synapse_jax.train.watch import Watch
from tests.small_decoders import SIZE, own_sources, own_vocabulary

SHAPE = DecoderShape(vocabulary=SIZE, width=32, layers=2, query_heads=2, head_size=16, ffn_width=48)
PLAN = TrainingPlan(tokens=2 * 2 * 128, rows=2, length=128, optimizer="adamw")
SMALL = Experiment(PLAN, SHAPE, window=16, blocks=(4,), seeds=(3, 5))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records of all runs, each from JSON."""
    corpus, vocabulary = own_sources(), own_vocabulary()
    ids = [token_stream(documents, vocabulary.tokenizer).ids for documents in (corpus.train, corpus.held_out)]
    texts = Texts(corpus, vocabulary, Splits(*ids))
    patch = pytest.MonkeyPatch()
    patch.setattr(experiments, "PROBE_BLOCKS", 2)
    found, watch = {}, Watch(looks=1, look_windows=2, final_windows=4)
    for run in SMALL.runs:
        folder = tmp_path_factory.mktemp("run") / "work"
        training, decoder = train_decoder(SMALL, run, texts, folder, watch=watch)
        record = judge(SMALL, run, texts, training, decoder)
        assert decoder.spec.attention == run.variant.attention
        found[run.name] = json.loads(json.dumps(record, allow_nan=False))
    patch.undo()
    return found


def test_runs_are_seed_by_seed_and_windows_have_equal_caches():
    assert [variant.attention for variant in SMALL.variants] == [
        "dense",
        "compressed:window=16,block=4",
        "window:44",
        "window:16",
    ]
    names = [run.name for run in SMALL.runs]
    assert names == [f"{v}-seed3" for v in ("full", "b4", "w44", "w16")] + [
        f"{v}-seed5" for v in ("full", "b4", "w44")
    ]
    published = Experiment(TrainingPlan(tokens=1, length=512), window=64)
    names = [variant.name for variant in published.variants]
    assert names == ["full", "b4", "b8", "w176", "w120", "w64"] and len(published.runs) == 16


def test_records_hold_losses_caches_and_probes(records):
    kib = SHAPE.kv_position_bytes
    assert kib == 2 * 2 * 16 * 2
    for name, record in records.items():
        assert record["probe"] is None or name.endswith("seed3")
        held_out = record["held_out"]
        assert [step for step, _ in record["losses"]] == [1, 2]
        assert held_out["loss"] == pytest.approx(record["training"]["held_out_loss"], abs=1e-6)
        assert sum(held_out["by_position"]) / 16 == pytest.approx(held_out["loss"], abs=1e-6)
        assert len(record["probe"]["depths"]) > 3 if record["probe"] else True
    live = {name: record["cache"]["live_bytes"] for name, record in records.items()}
    sums = 2 * 2 * 16 * 4  # layers, keys and values, head size, float32
    assert live["full-seed3"] == 128 * kib and live["w44-seed3"] == 44 * kib
    assert live["b4-seed3"] == (16 + 28) * kib + sums
    assert records["full-seed3"]["held_out"] != records["full-seed5"]["held_out"]


def test_the_report_says_what_the_records_say(records, tmp_path):
    text = table(SMALL, records)
    assert text.count("\n") == 1 + 4 and "| window:16 | 1 |" in text and "| dense | 2 |" in text
    lines = verdict(SMALL, records)
    assert "blocks of 4: 3.73 times" in lines[0]  # 112 positions against 28 and a float32 sum
    differences = [
        records[f"b4-seed{seed}"]["held_out"]["loss"] - records[f"w44-seed{seed}"]["held_out"]["loss"]
        for seed in (3, 5)
    ]
    assert f"{mean_interval(differences).mean:+.4f} nats" in lines[1]
    better = copy.deepcopy(records)
    for seed, loss in ((3, 1.0), (5, 1.001)):
        better[f"b4-seed{seed}"]["held_out"]["loss"] = loss
        better[f"w44-seed{seed}"]["held_out"]["loss"] = loss + 1
    assert verdict(SMALL, better)[1].endswith("compression loses less.")
    assert verdict(SMALL, {})[0].endswith("not measured yet.")
    plot_losses(SMALL, records, str(tmp_path / "losses.png"))
    plot_gains(SMALL, records, str(tmp_path / "gains.png"))
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("losses.png", "gains.png"))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"window": 17}, "length 128 is below eight windows of 17"),
        ({"blocks": (5,)}, "block 5 does not divide the 112 positions"),
        ({"seeds": ()}, "no seed"),
    ],
)
def test_experiments_that_make_no_sense_are_refused(changed, reason):
    with pytest.raises(InputError, match=reason):
        Experiment(**{"plan": PLAN, "shape": SHAPE, "window": 16, **changed})
