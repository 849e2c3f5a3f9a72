"""The copy probe: what is planted, from which ids, and what is made of the NLLs."""

from __future__ import annotations

import dataclasses
import json
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.probe import Trial, probe_entries, run_trials, scoring_rows
from synapse_jax.evals.probe_checkpoint import ProbeCheckpoint
from synapse_jax.evals.probe_plan import (
    Plant,
    ProbePlan,
    draw_plants,
    even_depths,
    parse_depths,
    plantable_ids,
)
from synapse_jax.evals.probe_result import NOTE, Reach, reach, summarize
from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, read_vocabulary
from synapse_jax.runtime.results import Scores
from synapse_jax.runtime.session import Session
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.runtime import RuntimeProfile
from tests.pair_vocabulary import pair_vocabulary
from tests.tiny import Tiny, vocabulary
from tests.tiny_model import TinyModel, tiny_spec

IDS = np.arange(300, 360, dtype=np.int32)


# ---- plans


@given(st.integers(16, 5000))
def test_auto_sweeps_evenly_from_the_first_to_the_last_depth(length):
    depths = even_depths(length)
    assert (depths[0], depths[-1]) == (0, length - 16)
    assert len(depths) == min(9, length - 15)
    gaps = np.diff(depths)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
    assert ProbePlan(length, 1, depths).skipped == ()


@given(st.integers(16, 400), st.sets(st.integers(0, 500), min_size=1))
def test_a_depth_is_skipped_if_its_needle_runs_into_the_copy(length, depths):
    given = tuple(sorted(depths))
    if given[0] + 8 > length - 8:
        with pytest.raises(InputError, match="no depth of"):
            ProbePlan(length, 1, given)
        return
    plan = ProbePlan(length, 1, given)
    assert plan.skipped == tuple(d for d in given if d + 8 > length - 8)
    assert tuple(sorted(plan.measured + plan.skipped)) == given


def test_depths_as_people_write_them():
    assert parse_depths("256, 0,128", 512) == (0, 128, 256)
    assert parse_depths("auto", 32) == even_depths(32) == tuple(range(0, 17, 2))
    for text, named in {
        "": "'' is not",
        "1,,2": "'' is not",
        "-1": "'-1'",
        "0,x": "'x'",
        "1.5": "'1.5'",
        "²": "'²'",
        "3,1,3": "3 is there twice",
    }.items():
        with pytest.raises(InputError, match=named):
            parse_depths(text, 512)


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ((15, 1, (0,)), "length 15"),
        ((16, 0, (0,)), "blocks 0"),
        ((16, 1, (0,), -1), "seed -1"),
        ((32, 1, (-1, 0)), "depth -1"),
        ((32, 1, (4, 0)), "4, 0 are not ascending"),
        ((32, 1, (4, 4)), "4, 4 are not ascending"),
        ((32, 1, ()), "no depth"),
    ],
)
def test_plans_that_cannot_be_are_refused(plan, named):
    with pytest.raises(InputError, match=named):
        ProbePlan(*plan)


def test_blocks_are_disjoint_consecutive_and_of_the_text():
    plan = ProbePlan(20, 3, (0,))
    assert plan.cut(IDS).tolist() == IDS.reshape(3, 20).tolist()
    assert plan.cut(IDS, bos_id=1)[:, :2].tolist() == [[1, 301], [1, 321], [1, 341]]
    with pytest.raises(InputError, match="3 blocks of 20 tokens need 60 tokens, there are 59"):
        plan.cut(IDS[:59])


# ---- ids


def read(metadata, *, byte_level=True):
    return read_vocabulary(metadata, "test", byte_level=byte_level)


def test_ids_below_256_are_not_drawn_where_the_bytes_come_first():
    """A vocabulary of ours: 256 bytes, merges, control tokens at the end."""
    found = read(pair_vocabulary(["hear the rain", "naïve words"], None))
    normal = found.of_type(NORMAL, USER_DEFINED)
    assert normal[:256] == list(range(256)) and len(normal) > 256
    assert plantable_ids(found).tolist() == normal[256:]
    assert not {found.pieces[i] for i in plantable_ids(found)} & {"<|begin|>", "<|im_start|>", "<|im_end|>"}


def test_bytes_are_found_wherever_they_are():
    pieces, kinds, eos, bos = vocabulary(288)
    order = list(np.random.RandomState(1).permutation(288))
    metadata = {
        "tokenizer.ggml.tokens": [pieces[i] for i in order],
        "tokenizer.ggml.token_type": [kinds[i] for i in order],
        "tokenizer.ggml.eos_token_id": order.index(eos),
        "tokenizer.ggml.bos_token_id": order.index(bos),
    }
    found = read(metadata)
    merged = {"Ġt", "he", "Ġthe", "in", "Ġa", "er", "on", "re"}
    assert {found.pieces[i] for i in plantable_ids(found)} == merged


def test_kinds_that_stand_for_no_text_are_not_drawn():
    kinds = [UNKNOWN, CONTROL, CONTROL, BYTE, UNUSED, 0, USER_DEFINED, *[NORMAL] * 8]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "x", "y", "z", *"abcdefgh"],
        "tokenizer.ggml.token_type": kinds,
    }
    # Single characters are text here, not bytes.
    assert plantable_ids(read(metadata, byte_level=False)).tolist() == list(range(6, 15))
    metadata["tokenizer.ggml.token_type"] = [*kinds[:-2], UNUSED, UNUSED]
    with pytest.raises(InputError, match="7 of 15 tokens"):
        plantable_ids(read(metadata, byte_level=False))


def test_special_tokens_without_types_are_not_drawn():
    pieces = ["<s>", "</s>", "<unk>", *"abcdefgh"]
    metadata = {"tokenizer.ggml.tokens": pieces, "tokenizer.ggml.bos_token_id": 0}
    metadata |= {"tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.unknown_token_id": 2}
    assert plantable_ids(read(metadata, byte_level=False)).tolist() == list(range(3, 11))


def test_ids_of_real_vocabularies(smol_path):
    with open_gguf(smol_path) as file:
        found = read(file.metadata)
    ids = plantable_ids(found)
    left_out = set(range(49152)) - set(ids.tolist())
    # 17 control tokens and the 243 bytes that it has.
    assert {len(found.pieces[i]) == 1 for i in left_out - set(found.of_type(CONTROL))} == {True}
    assert len(ids) == 49152 - len(found.of_type(CONTROL)) - len(
        [p for p in found.pieces if len(p) == 1 and found.types[found.ids[p]] != CONTROL]
    )


# ---- planting

PLANTABLE = np.arange(256, 300, dtype=np.int32)


@given(
    st.integers(16, 80),
    st.integers(1, 3),
    st.sets(st.integers(0, 64), min_size=1, max_size=5),
    st.integers(0, 2**40),
)
def test_planted_and_control_differ_only_in_the_planted_span(length, blocks, depths, seed):
    depths = tuple(sorted({0, *depths}))
    plan = ProbePlan(length, blocks, depths, seed)
    text = np.random.RandomState(seed % 1000).randint(0, 256, (blocks, length)).astype(np.int32)
    kept = text.copy()
    plants = draw_plants(plan, PLANTABLE)
    assert [(p.block, p.depth) for p in plants] == [(b, d) for b in range(blocks) for d in plan.measured]
    for plant in plants:
        block, span = text[plant.block], np.arange(plant.depth, plant.depth + 8)
        planted, control = plant.planted(block), plant.control(block)
        assert planted.dtype == control.dtype == np.int32
        assert set(np.flatnonzero(planted != control)) <= set(span)
        assert tuple(planted[span]) == tuple(planted[-8:]) == tuple(control[-8:]) == plant.needle
        assert tuple(control[span]) == plant.decoy
        rest = np.setdiff1d(np.arange(length - 8), span)
        assert (planted[rest] == block[rest]).all() and (control[rest] == block[rest]).all()
        assert {*plant.needle, *plant.decoy} <= set(PLANTABLE.tolist())
    assert (text == kept).all()


def test_draws_are_needle_then_decoy_in_depth_order_from_one_generator_a_block():
    plan = ProbePlan(64, 3, (0, 10, 48, 49), seed=7)
    plants = draw_plants(plan, PLANTABLE)
    for block in range(3):
        random = np.random.default_rng([7, block])
        for depth in (0, 10, 48):
            needle, decoy = (tuple(random.choice(PLANTABLE, 8).tolist()) for _ in range(2))
            assert plants.pop(0) == Plant(block, depth, needle, decoy)
    assert plants == []
    assert draw_plants(dataclasses.replace(plan, seed=8), PLANTABLE)[0] != draw_plants(plan, PLANTABLE)[0]


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
            checkpoint.add_trial(trial)
    with ProbeCheckpoint(tmp_path / "c", {"a": 1}, plants, resume=True) as checkpoint:
        assert checkpoint.trials == [dataclasses.replace(trial, reused_tokens=0) for trial in trials]
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
