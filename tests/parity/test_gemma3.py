"""Gemma-3-270M against transformers, position by position."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import synapse_jax as sj
from synapse_jax.spec.digest import sha256_tokens

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "parity_gemma3.json").read_text())


@pytest.fixture(scope="module")
def gemma(gemma_path):
    with sj.load(gemma_path) as model:
        yield model


@pytest.fixture(scope="module")
def session(gemma):
    return sj.Session(gemma, sj.RuntimeProfile(context=1024), ready=[])


def test_the_golden_is_of_this_model(gemma):
    assert GOLDEN["provenance"]["model"]["sha256"] == gemma.sha256()
    ids = GOLDEN["tokens"]["ids"]
    assert GOLDEN["tokens"]["sha256"] == sha256_tokens(ids) and len(ids) == 512 and ids[0] == 2


def test_positions_equal_transformers(session):
    scores = session.score(GOLDEN["tokens"]["ids"])
    assert np.abs(scores.nll - GOLDEN["nll"]).max() <= 1e-3


def test_steps_of_any_size_give_the_same_bits(session):
    ids = GOLDEN["tokens"]["ids"][:128]
    whole, steps = session.score(ids), session.score(ids, rows=32)
    assert np.array_equal(steps.nll, whole.nll) and np.array_equal(steps.greedy, whole.greedy)
    one = session.score(ids[:48], rows=1)
    assert np.abs(one.nll - whole.nll[:47]).max() <= 1e-4
    assert np.array_equal(one.greedy, whole.greedy[:47])
