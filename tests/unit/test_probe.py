"""The copy probe: what is measured, what is made of the NLLs, and what is kept."""

from __future__ import annotations

import dataclasses
import json
import types

import numpy as np
import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.probe import Trial, probe_entries, run_trials, scoring_rows
from synapse_jax.evals.probe_checkpoint import ProbeCheckpoint
from synapse_jax.evals.probe_plan import (
    Plant,
    ProbePlan,
    draw_plants,
)
from synapse_jax.evals.probe_result import NOTE, Reach, reach, summarize
from synapse_jax.runtime.results import Scores
from synapse_jax.runtime.session import Session
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.runtime import RuntimeProfile
from tests.tiny import Tiny
from tests.tiny_model import TinyModel, tiny_spec

PLANTABLE = np.arange(256, 300, dtype=np.int32)


# ---- measuring

MODELS = {
    "llama": TinyModel(Tiny(context=256, layers=2)),
    "mistral": TinyModel(Tiny(context=256, layers=1, window=24)),
    "gemma3": TinyModel(Tiny("gemma3", context=256, layers=2, period=2, window=20)),
}
TEXT = np.random.RandomState(2).randint(0, 256, 2 * 100).astype(np.int32)
PLAN = ProbePlan(100, 2, (0, 10, 40, 84), seed=3)


def new_session(name: str, attention: str = "dense") -> Session:
    return Session(MODELS[name], RuntimeProfile(page_size=16, attention=attention), ready=[])


def probe(session: Session, plan: ProbePlan = PLAN, **more) -> list[Trial]:
    plants = draw_plants(plan, PLANTABLE[:32])
    return list(run_trials(session, plan.cut(TEXT), plan, plants, **more))


@pytest.mark.parametrize("name", MODELS)
def test_trials_are_the_scores_of_independent_sequences_to_the_bit(name):
    """A prefix that is shared is evaluated once, and changes nothing."""
    trials, alone = probe(new_session(name)), new_session(name)
    blocks = PLAN.cut(TEXT)
    for trial in trials:
        block = blocks[trial.plant.block]
        recalled, unseen = (
            alone.score(ids, 92).nll for ids in (trial.plant.planted(block), trial.plant.control(block))
        )
        assert np.array_equal(np.float32(trial.recalled), recalled)
        assert np.array_equal(np.float32(trial.unseen), unseen)
        if name == "llama":  # the control begins as the planted one does
            assert trial.reused_tokens >= trial.plant.depth
    assert len(trials) == 8


def test_a_needle_out_of_reach_of_all_layers_gains_exactly_nothing():
    """One layer that slides over 24 keys: the copy's first token is predicted by row 91, which sees 68 on."""
    plan = ProbePlan(100, 2, (0, 60, 61, 84), seed=3)
    for trial in probe(new_session("mistral"), plan):
        assert (trial.gain == 0) == (trial.plant.depth + 7 < 91 - 23), trial.plant.depth


def test_progress_reaches_every_position():
    seen = []
    probe(new_session("llama"), progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 16 * 99) and seen[-1] == (16 * 99, 16 * 99)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    later = []
    rest = probe(new_session("llama"), done=5, progress=lambda done, total: later.append((done, total)))
    assert later[0] == (10 * 99, 16 * 99) and later[-1] == seen[-1] and len(rest) == 3


def test_single_token_policies_are_measured_in_the_decode_role():
    policy = "pages:budget=16,window=8"
    session, alone = new_session("llama", policy), new_session("llama", policy)
    pages, dense = probe(session), probe(new_session("llama"))
    block = PLAN.cut(TEXT)[0]
    expected = alone.score(pages[0].plant.planted(block), 92, rows=1).nll
    assert np.array_equal(np.float32(pages[0].recalled), expected)
    assert pages[0].recalled != dense[0].recalled
    assert {trial.reused_tokens for trial in pages} == {0}


@pytest.mark.parametrize("attention", ["dense", "pages:budget=16,window=8"])
def test_entries_that_are_made_ready_are_all_that_a_probe_uses(attention):
    policy = parse_attention(attention)
    ready = probe_entries(PLAN, policy)
    session = Session(MODELS["llama"], RuntimeProfile(page_size=16, attention=attention), ready=ready)
    before = session.compiled_entries
    probe(session)
    assert session.compiled_entries == before
    assert scoring_rows(PLAN, policy) == (1 if policy.is_decode_only else 99)
    assert scoring_rows(ProbePlan(4096, 1, (0,)), parse_attention("dense")) == 512


def test_a_run_that_fails_names_block_and_depth():
    def score(*args, **more):
        raise RunError("the NLL at position 93 is nan")

    policy = types.SimpleNamespace(policy=parse_attention("dense"))
    session = types.SimpleNamespace(profile=policy, score=score)
    with pytest.raises(RunError, match="block 0, depth 0: the NLL at position 93"):
        probe(session)  # type: ignore[arg-type]


class Copier:
    """Pretends to be a session whose model copies: a token costs 1 if the one before it occurred before with
    the same successor, within `reach` tokens, and 9 if not."""

    def __init__(self, reach: int = 10**9):
        self.profile = types.SimpleNamespace(policy=parse_attention("dense"))
        self._reach = reach

    def score(self, ids, start, *, rows, reuse, progress):
        pairs = [tuple(pair) for pair in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True)]
        nll = [1 if pairs[j - 1] in pairs[max(0, j - 1 - self._reach) : j - 1] else 9
               for j in range(start, len(ids))]  # fmt: skip
        return Scores(np.array(nll, np.float32), np.zeros(len(nll), np.int32))


def test_a_copying_model_gains_all_but_the_first_token():
    """And one that sees 60 tokens gains nothing from needles further back."""
    for limit, depths in ((10**9, (0, 10, 40, 84)), (60, (40, 84))):
        plants = draw_plants(PLAN, np.arange(1000, 9000))
        trials = list(run_trials(Copier(limit), PLAN.cut(np.arange(200)), PLAN, plants))  # type: ignore[arg-type]
        result = summarize(PLAN, trials, tiny_spec(), parse_attention("dense"))
        for at in result["depths"]:
            found = at["depth"] in depths
            assert at["gain"] == {"mean": 7.0 * found, "low": 7.0 * found, "high": 7.0 * found}
            assert at["gain_without_first"]["mean"] == 8.0 * found
            assert (at["needle_nll_recalled"], at["needle_nll_unseen"]) == (9 - 7.0 * found, 9)


# ---- results


def trials_with(gains: dict[tuple[int, int], float]) -> list[Trial]:
    """Trials by (block, depth); the first token's NLLs are 2 and 5 higher than the others'."""
    return [
        Trial(Plant(b, d, (1,) * 8, (2,) * 8), (3.0, *[1.0] * 7), (6.0 + gain, *[1.0 + gain] * 7))
        for (b, d), gain in gains.items()
    ]


def test_figures_of_a_probe():
    plan = ProbePlan(64, 3, (0, 30, 60), seed=5)
    gains = {(0, 0): 1.0, (0, 30): 2.0, (1, 0): 2.0, (1, 30): 2.0, (2, 0): 6.0, (2, 30): 2.0}
    result = summarize(plan, trials_with(gains), tiny_spec(), parse_attention("dense"))
    assert result["note"] == NOTE and "not the long-context needle test" in NOTE
    assert (result["length"], result["blocks"], result["needle_tokens"], result["seed"]) == (64, 3, 8, 5)
    assert (result["skipped_depths"], result["reach"]) == ([60], None)
    # The original's rows: its five fields, of the first block alone.
    assert [list(row) for row in result["rows"]] == [
        ["type", "depth", "gain", "needle_nll_recalled", "needle_nll_unseen"]
    ] * 2
    assert result["rows"][0] == {
        "type": "copy_probe",
        "depth": 0,
        "gain": 1.375,
        "needle_nll_recalled": 1.25,
        "needle_nll_unseen": 2.625,
    }
    first, second = result["depths"]
    assert (first["depth"], first["n"]) == (0, 3)
    half = 4.3026527 * 7**0.5 / 3**0.5
    assert first["gain"] == {
        "mean": pytest.approx(3.375),
        "low": pytest.approx(3.375 - half),
        "high": pytest.approx(3.375 + half),
    }
    assert first["gain_without_first"]["mean"] == pytest.approx(3)
    assert second["gain"]["low"] == second["gain"]["high"] == pytest.approx(2.375)
    assert second["needle_nll_unseen"] - second["needle_nll_recalled"] == pytest.approx(2.375)
    assert result["trials"][2] == {
        "block": 1,
        "depth": 0,
        "needle": (1,) * 8,
        "decoy": (2,) * 8,
        "recalled": [3.0, *[1.0] * 7],
        "unseen": [8.0, *[3.0] * 7],
    }


def test_one_block_has_no_interval():
    result = summarize(
        ProbePlan(64, 1, (0,)), trials_with({(0, 0): 1.0}), tiny_spec(), parse_attention("dense")
    )
    assert result["depths"][0]["gain"] == {"mean": 1.375, "low": None, "high": None}


def test_reach_is_of_one_layer_and_of_all():
    spec = tiny_spec(Tiny(layers=4))
    assert reach(spec, parse_attention("window:64")) == Reach(63, 4 * 63)
    assert reach(spec, parse_attention("compressed:window=64,block=8")) == Reach(63, 4 * 63)
    for attention in ("dense", "pages:budget=16,window=64"):
        assert reach(spec, parse_attention(attention)) is None
    # Layers that slide by the file's own masks keep their windows.
    mixed = tiny_spec(Tiny("gemma3", layers=3, period=3, window=20))
    assert reach(mixed, parse_attention("window:64")) == Reach(63, 19 + 19 + 63)


# ---- checkpoints


def test_trials_read_back_to_the_bit(tmp_path):
    plants = draw_plants(PLAN, PLANTABLE)
    trials = [Trial(p, tuple(np.random.RandomState(i).rand(8).tolist()), (0.1,) * 8, reused_tokens=7)
              for i, p in enumerate(plants[:3])]  # fmt: skip
    with ProbeCheckpoint(tmp_path / "c", {"a": 1}, plants, resume=False) as checkpoint:
        checkpoint.begin({"graph": 1})
        for trial in trials:
            checkpoint.add(trial)
    with ProbeCheckpoint(tmp_path / "c", {"a": 1}, plants, resume=True) as checkpoint:
        assert checkpoint.done == [dataclasses.replace(trial, reused_tokens=0) for trial in trials]
    with pytest.raises(InputError, match="is of another run: a differ"):
        ProbeCheckpoint(tmp_path / "c", {"a": 2}, plants, resume=True)
    with pytest.raises(InputError, match="trial 0, block 0 at depth 0, is not of this run"):
        ProbeCheckpoint(tmp_path / "c", {"a": 1}, plants[1:], resume=True)
    with pytest.raises(InputError, match="trial 2, block 0 at depth 40, is not of this run"):
        ProbeCheckpoint(tmp_path / "c", {"a": 1}, plants[:2], resume=True)
    lines = (tmp_path / "c").read_text().splitlines()
    short = json.loads(lines[2])
    short["unseen"].pop()
    (tmp_path / "c").write_text("\n".join([*lines[:2], json.dumps(short)]) + "\n")
    with pytest.raises(InputError, match="line 3 is not of a checkpoint"):
        ProbeCheckpoint(tmp_path / "c", {"a": 1}, plants, resume=True)
