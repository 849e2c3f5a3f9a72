"""The decoder that comes with the package: it runs without the network, has read code, and copies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import synapse_jax as sj
from synapse_jax.io import fetch

NAME = "synapse-python-3m"
PACKAGE = Path(sj.__file__).parent


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path):
    """An empty cache, and a download is an error."""

    def refuse(*arguments, **options):
        raise AssertionError("something is downloaded")

    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "download_wheel", refuse)


def test_it_scores_and_completes_code(synapse, own_path):
    code = PACKAGE / "io" / "wheels.py"
    record = synapse("score", "--model", NAME, "--text-file", code, "--context", 512, "--json").record
    assert record["model"]["path"] == str(own_path)
    # Far below a uniform guess, 4,096, and no figure of a large model.
    assert 5 < record["result"]["perplexity"] < 200
    prompt = "class Node:\n    def __init__(self, name):\n        self."
    text = synapse("generate", "--model", NAME, "--prompt", prompt, "--max-new-tokens", 4, "--json").record
    assert len(text["result"]["token_ids"]) == 4


def test_its_nll_is_that_of_float64_and_of_llama_cpp(own_path):
    golden = json.loads((Path(__file__).parent.parent / "golden" / "own_model.json").read_text())
    with sj.load(own_path) as model:
        assert model.sha256() == golden["provenance"]["model"]["sha256"]
        session = sj.Session(model, sj.RuntimeProfile(context=512), ready=[])
        nll = session.score(np.array(golden["tokens"]["ids"], np.int32), start=1).nll
    assert np.std(nll) > 1
    np.testing.assert_allclose(nll, golden["nll"], atol=1e-4, rtol=0)
    # Single figures of llama.cpp are up to 1.1e-4 from float64 (golden: `largest_difference`).
    assert np.mean(nll) == pytest.approx(np.mean(golden["llama_cpp_nll"]), rel=2e-6)


def test_it_copies_from_every_depth(synapse, tmp_path):
    """Tokens that came once before cost less by far more than the nat that EXP-018 asks for."""
    text = tmp_path / "own.py"
    text.write_text("".join(path.read_text() for path in sorted((PACKAGE / "cli").glob("*.py"))))
    probe = ("probe", "--model", NAME, "--text-file", text, "--length", 512, "--depths", "0,200,400")
    depths = synapse(*probe, "--blocks", 16, "--json").record["result"]["depths"]
    assert [at["depth"] for at in depths] == [0, 200, 400]
    for at in depths:
        assert at["gain"]["mean"] > 1 and at["gain"]["low"] > 0, at
