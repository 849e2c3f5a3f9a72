"""The tokens that a session says it has evaluated: from the steps that ran, not from what was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from synapse_jax.runtime import packing
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from synapse_jax.spec.sampling import Sampling
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

IDS = np.random.RandomState(3).randint(0, 288, 700).tolist()


@pytest.fixture(scope="module")
def session():
    return Session(TinyModel(Tiny(context=1024)), RuntimeProfile(), ready=[])


def evaluated(session):
    assert session.evaluated_ids.dtype == np.int32
    return session.evaluated_ids.tolist()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=5)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("new", [0, 1, 2, 40])
def test_a_prompt_and_its_new_tokens_but_the_last(session, sampling, new):
    found = session.generate(IDS, new, sampling=sampling, stop_ids=())
    assert evaluated(session) == IDS + list(found.token_ids)[: max(new - 1, 0)]
    assert len(evaluated(session)) == session.cache.held


def test_a_stop_token_comes_after_the_last_evaluated_one(session):
    usual = session.generate(IDS, 20, stop_ids=()).token_ids
    at = next(i for i in range(2, 20) if usual[i] not in usual[:i])
    found = session.generate(IDS, 20, stop_ids=(usual[at],))
    assert (found.token_ids, found.finish_reason) == (usual[:at], "stop")
    assert evaluated(session) == IDS + list(usual[:at])


def test_what_is_reused_is_not_among_them(session):
    session.generate(IDS[:500], 1, reuse=True)
    found = session.generate(IDS, 3, stop_ids=(), reuse=True)
    assert found.reused_tokens == 500
    assert evaluated(session) == IDS[500:] + list(found.token_ids[:2])
    session.reset()
    assert evaluated(session) == []


def test_scores_steps_and_logits(session):
    session.score(IDS)
    assert evaluated(session) == IDS[:-1]
    session.score(IDS[:40], rows=1)
    assert evaluated(session) == IDS[:39]
    session.logits(IDS[:100], [69])
    assert evaluated(session) == IDS[:70]
    endings = [IDS[100:105], IDS[200:203]]
    session.score_continuations(IDS[:50], endings)
    # The prompt's last token is evaluated with every ending.
    assert evaluated(session) == [*IDS[:49], IDS[49], *IDS[100:104], IDS[49], *IDS[200:202]]
    session.reset()
    session.step(IDS[:10])
    session.step(IDS[10:12])
    assert evaluated(session) == IDS[10:12]


def test_a_step_with_other_tokens_shows(session, monkeypatch):
    pack = packing.pack_rows

    def changed(entry, ir, segments):
        rows = pack(entry, ir, segments)
        if segments[0].start == 512:
            rows.token_T[0] += 1
        return rows

    monkeypatch.setattr(packing, "pack_rows", changed)
    session.generate(IDS, 1)
    assert [i for i, (a, b) in enumerate(zip(evaluated(session), IDS, strict=True)) if a != b] == [512]


def test_a_step_that_is_left_out_shows(session, monkeypatch):
    steps = session._runner.steps
    monkeypatch.setattr(session._runner, "steps", lambda *a: list(steps(*a))[:1] + list(steps(*a))[2:])
    session.generate(IDS, 1)
    assert evaluated(session) != IDS and len(evaluated(session)) < len(IDS)
