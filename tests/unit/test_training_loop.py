"""Runs of the training loop: the same bits again, after an interruption too; what a folder refuses."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from synapse_jax.train import loop
from synapse_jax.train.batches import held_out_windows
from synapse_jax.train.curves import plot_losses
from synapse_jax.train.decoder import Decoder
from synapse_jax.train.log import HeldOutLine, StepLine, TrainingLog, read_log
from synapse_jax.train.loop import Splits, Training, train
from synapse_jax.train.plan import OPTIMIZERS, TrainingPlan
from synapse_jax.train.shape import DecoderShape
from synapse_jax.train.summary import training_summary, weights_sha256
from synapse_jax.train.watch import Watch

SHAPE = DecoderShape(
    **{"vocabulary": 300, "width": 16, "layers": 1, "query_heads": 2, "head_size": 8, "ffn_width": 24},
    **{"context": 32, "attention": "compressed:window=8,block=4"},
)
PLAN = TrainingPlan(
    **{"tokens": 9 * 3 * 32 - 5, "rows": 3, "length": 32, "optimizer": "adamw", "peak_rate": 0.02},
    **{"repeat_share": 0.3, "repeat_length": 5},
)
STEPS = 9
WATCH = Watch(looks=3, look_windows=2, final_windows=7, checkpoint_s=0)


@functools.cache
def splits() -> Splits:
    """A text in which the next token is one of three."""
    ids = np.cumsum(np.random.RandomState(0).randint(0, 3, 2000)) % 299
    return Splits(ids[:1500].astype(np.uint16), ids[1500:].astype(np.uint16))


@functools.cache
def undisturbed() -> Training:
    return train(SHAPE, PLAN, splits(), watch=WATCH)


class Killed(Exception):
    pass


def killing_at(step: int):
    def report(status):
        if status.step == step:
            raise Killed

    return report


def losses(training: Training) -> list[float]:
    return [line.loss for line in training.lines if isinstance(line, StepLine)]


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    # This one keeps a log, looks more often and at other windows: none of it may matter.
    watch = Watch(looks=9, look_windows=1, final_windows=7, checkpoint_s=1000)
    again = train(SHAPE, PLAN, splits(), watch=watch, folder=tmp_path / "run")
    assert weights_sha256(again.weights()) == weights_sha256(undisturbed().weights())
    assert losses(again) == losses(undisturbed()) and len(losses(again)) == STEPS
    assert again.held_out_loss == undisturbed().held_out_loss
    assert read_log(tmp_path / "run" / "log.jsonl") == list(again.lines)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [str(STEPS)]


def test_another_seed_gives_others():
    other = train(SHAPE, dataclasses.replace(PLAN, seed=1), splits(), watch=WATCH)
    assert losses(other)[0] != losses(undisturbed())[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_killed_and_resumed_it_ends_with_the_same_bytes(tmp_path, optimizer):
    plan, folder = dataclasses.replace(PLAN, optimizer=optimizer), tmp_path / "run"
    wanted = undisturbed() if optimizer == "adamw" else train(SHAPE, plan, splits(), watch=WATCH)
    # In step 1 nothing is saved yet; the second kill is after a resumed step.
    for step in (1, 5, 6):
        with pytest.raises(Killed):
            train(
                *(SHAPE, plan, splits()),
                **{"folder": folder, "resume": True, "watch": WATCH, "report": killing_at(step)},
            )
    with open(folder / "log.jsonl", "ab") as log:
        log.write(b'{"step": 7, "lo')  # a line that was being written when the power went
    resumed = train(SHAPE, plan, splits(), folder=folder, resume=True, watch=WATCH)
    assert resumed.resumed_steps == 5
    assert weights_sha256(resumed.weights()) == weights_sha256(wanted.weights())
    assert losses(resumed) == losses(wanted)
    looks = [
        [dataclasses.asdict(line) for line in run.lines if isinstance(line, HeldOutLine)]
        for run in (resumed, wanted)
    ]
    assert looks[0] == looks[1] and [look["step"] for look in looks[0]] == [3, 6, 9]
    seconds = [line.seconds for line in resumed.lines if isinstance(line, StepLine)]
    assert seconds == sorted(seconds) and 0 < resumed.seconds < seconds[-1]
    assert read_log(folder / "log.jsonl") == list(resumed.lines)

    over = train(SHAPE, plan, splits(), folder=folder, resume=True, watch=WATCH)
    assert over.lines == resumed.lines and over.resumed_steps == STEPS and over.seconds == 0
    assert weights_sha256(over.weights()) == weights_sha256(wanted.weights())
    assert (over.held_out_nll == resumed.held_out_nll).all()


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """The folder of a run that was killed after two steps."""
    folder = tmp_path_factory.mktemp("runs") / "begun"
    with pytest.raises(Killed):
        train(SHAPE, PLAN, splits(), folder=folder, watch=WATCH, report=killing_at(3))
    return folder


@pytest.mark.parametrize(
    ("shape", "plan", "held_out", "named"),
    [
        ({}, {"seed": 4}, False, ["plan.seed (0, now 4)"]),
        ({"ffn_width": 32}, {}, False, ["shape.ffn_width (24, now 32)"]),
        ({"attention": "window:8"}, {"clip": 2.0}, False, ["plan.clip", "shape.attention"]),
        ({}, {}, True, ["corpus.held_out_sha256"]),
    ],
)
def test_a_folder_of_another_run_is_refused_with_what_differs(begun, shape, plan, held_out, named):
    there = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    other = Splits(splits().train, splits().train if held_out else splits().held_out)
    with pytest.raises(InputError) as caught:
        train(
            *(dataclasses.replace(SHAPE, **shape), dataclasses.replace(PLAN, **plan), other),
            **{"folder": begun, "resume": True, "watch": WATCH},
        )
    text = str(caught.value)
    assert "is of another run: " in text and all(name in text for name in named)
    assert text.count("now") == len(named), "nothing else differs"
    assert there == {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}


def test_a_run_is_not_written_over(begun):
    with pytest.raises(InputError, match="is there already; --resume"):
        train(SHAPE, PLAN, splits(), folder=begun, watch=WATCH)


def test_two_processes_do_not_share_a_folder(begun):
    with TrainingLog(begun / "log.jsonl", resume=True), pytest.raises(InputError, match="another run"):
        train(SHAPE, PLAN, splits(), folder=begun, resume=True, watch=WATCH)


def test_a_log_that_misses_steps_is_refused(begun, tmp_path):
    log = begun / "log.jsonl"
    before = log.read_bytes()
    try:
        log.write_bytes(before[before.index(b"\n") + 1 :])
        with pytest.raises(InputError, match="does not hold the 2 steps"):
            train(SHAPE, PLAN, splits(), folder=begun, resume=True, watch=WATCH)
        log.write_text("step 1\n")
        with pytest.raises(InputError, match="line 1: is not of a training log"):
            train(SHAPE, PLAN, splits(), folder=begun, resume=True, watch=WATCH)
    finally:
        log.write_bytes(before)


def test_plan_json_names_all_that_decides(begun):
    names = json.loads((begun / "plan.json").read_text())
    for field in dataclasses.fields(TrainingPlan):
        assert names[f"plan.{field.name}"] == getattr(PLAN, field.name)
    assert names["shape.attention"] == SHAPE.attention and "versions.jaxlib" in names


def test_a_session_gives_the_losses_of_the_trainer():
    training = undisturbed()

    class Source:
        spec, stop_ids = SHAPE.spec(), ()

        def read_weight(self, name):
            return training.weights()[name].copy()

    session = Session(Source(), RuntimeProfile(context=32))
    windows = held_out_windows(splits().held_out, PLAN.length, WATCH.final_windows)
    for window, nll in zip(windows, training.held_out_nll, strict=True):
        # The last target has no place in a context of 32.
        scored = session.score(window[:-1].tolist(), start=1).nll
        np.testing.assert_allclose(scored, nll[:-1], atol=1e-5)


def test_it_learns():
    assert losses(undisturbed())[0] == pytest.approx(np.log(300), abs=0.1)
    assert losses(undisturbed())[-1] < losses(undisturbed())[0] - 0.1
    plan = dataclasses.replace(PLAN, tokens=120 * 96, optimizer="muon", repeat_share=0.0, peak_rate=0.03)
    assert train(SHAPE, plan, splits(), watch=WATCH).held_out_loss < 3.0


def test_a_loss_that_is_no_number_ends_the_run(monkeypatch, tmp_path):
    class Diverged(Decoder):
        def weights(self):
            return {name: array + np.float32(np.inf) for name, array in super().weights().items()}

    monkeypatch.setattr(loop, "Decoder", Diverged)
    with pytest.raises(RunError, match="step 1 is nan: the training has diverged"):
        train(SHAPE, PLAN, splits(), watch=WATCH, folder=tmp_path / "run")
    assert not read_log(tmp_path / "run" / "log.jsonl")


@pytest.mark.parametrize(
    ("shape", "plan", "watch", "named"),
    [
        ({"context": 31}, {}, {}, "length 32 is above the context 31"),
        ({"vocabulary": 290}, {}, {}, "the train split holds token 298, the vocabulary ends at 289"),
        ({}, {"length": 1600}, {}, "length 1600"),
        ({}, {}, {"final_windows": 16}, "from 1 to 15 windows of 33, not 16"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_made(tmp_path, shape, plan, watch, named):
    with pytest.raises(InputError, match=named):
        train(
            *(dataclasses.replace(SHAPE, **shape), dataclasses.replace(PLAN, **plan), splits()),
            **{"watch": dataclasses.replace(WATCH, **watch), "folder": tmp_path / "run"},
        )
    assert not (tmp_path / "run").exists()


def test_a_summary_tells_the_figures_of_the_run():
    found = training_summary(SHAPE, PLAN, undisturbed())
    nll = undisturbed().held_out_nll
    assert nll.shape == (7, 32)
    assert found["held_out_loss"] == pytest.approx(nll.mean())
    assert found["held_out_error"] == pytest.approx(nll.mean(1).std(ddof=1) / 7**0.5)
    assert found["tokens"] == STEPS * 96 and found["train_loss"] == losses(undisturbed())[-1]
    assert [look["windows"] for look in found["looks"]] == [2, 2, 7]
    assert found["parameters"] == sum(array.size for array in undisturbed().weights().values())
    json.dumps(found, allow_nan=False)


def test_looks_are_spread_over_the_run():
    watch = dataclasses.replace(WATCH, looks=4)
    assert [step for step in range(1, 11) if watch.is_due(step, 10)] == [3, 5, 8, 10]
    assert [step for step in range(1, 4) if watch.is_due(step, 3)] == [1, 2, 3]


def test_losses_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "loss.png"
    plot_losses(path, {"a": undisturbed().lines, "b": undisturbed().lines[:2]}, {"a": 96, "b": 96})
    assert path.read_bytes()[:4] == b"\x89PNG"
