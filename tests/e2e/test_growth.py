"""Around the first rung of the capacity ladder: nothing is clamped, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest

import synapse_jax as sj
from tests.e2e.conftest import as_argument, some_ids
from tests.float64_forward import float64_logits
from tests.tiny import write_tiny

CONTEXT, RUNG, PAGE = 1280, 1024, 16


@pytest.fixture(scope="module")
def long_tiny(tmp_path_factory):
    """A model with a window above 1,024, and its weights."""
    path = tmp_path_factory.mktemp("models") / "long.gguf"
    return path, write_tiny(path, context=CONTEXT, layers=1)


@pytest.mark.parametrize("new", [1, 3])
def test_prompts_around_the_first_rung_equal_an_uncached_run(long_tiny, new):
    path, tiny = long_tiny
    base = some_ids(RUNG + 2)
    # A row sees nothing after it: one evaluation serves the prompts of every length.
    after = float64_logits(tiny, base).argmax(-1)
    with sj.load(path) as model:
        session = sj.Session(model, sj.RuntimeProfile(page_size=PAGE), ready=[])
        for length in range(RUNG - 2, RUNG + 3):
            generation = session.generate(base[:length], new, stop_ids=())
            assert generation.token_ids[0] == after[length - 1]
            if new > 1:
                ids = base[:length] + list(generation.token_ids)
                expected = float64_logits(tiny, ids)[length - 1 : -1].argmax(-1)
                assert list(generation.token_ids) == expected.tolist()
            assert session.cache.held == length + new - 1
            # The rung is used up to its last position, and growth is kept.
            assert session.cache.capacity == (CONTEXT if session.cache.held > RUNG else RUNG)


def test_generation_that_crosses_the_rung_equals_an_uncached_run(synapse, long_tiny):
    path, tiny = long_tiny
    prompt = some_ids(RUNG - 2)
    given = ["generate", "--model", path, "--page-size", PAGE, "--tokens", as_argument(prompt), "--json"]
    record = synapse(*given, "--max-new-tokens", 8).record
    new = record["result"]["token_ids"]
    assert len(new) == 8
    assert new == float64_logits(tiny, prompt + new)[RUNG - 3 : -1].argmax(-1).tolist()
    assert record["memory"]["kv_positions"] == RUNG + 5


def test_scores_beyond_the_rung_equal_an_uncached_run(long_tiny):
    path, tiny = long_tiny
    ids = some_ids(RUNG + 8)
    logits = float64_logits(tiny, ids)[:-1]
    top = logits.max(-1, keepdims=True)
    nll = np.log(np.exp(logits - top).sum(-1)) + top[:, 0] - logits[np.arange(len(logits)), ids[1:]]
    with sj.load(path) as model:
        session = sj.Session(model, sj.RuntimeProfile(page_size=PAGE), ready=[])
        for rows in (512, 32):
            scores = session.score(ids, RUNG - 8, rows=rows)
            np.testing.assert_allclose(scores.nll, nll[RUNG - 9 :], atol=1e-3)
            assert scores.greedy.tolist() == logits[RUNG - 9 :].argmax(-1).tolist()
