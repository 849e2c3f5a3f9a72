"""The copy probe: at which depths, from which ids, and what is planted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.evals.probe_plan import (
    Plant,
    ProbePlan,
    draw_plants,
    even_depths,
    parse_depths,
    plantable_ids,
)
from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, read_vocabulary
from tests.pair_vocabulary import pair_vocabulary
from tests.tiny import vocabulary

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
