"""The decoder that comes with the package: it runs without the network, has read code, and copies."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import synapse_jax
from synapse_jax.io import fetch

NAME = "synapse-python-3m"
PACKAGE = Path(synapse_jax.__file__).parent


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
    assert text["result"]["token_ids"] and math.isfinite(text["timings"]["total_s"])


def test_it_copies_from_every_depth(synapse, tmp_path):
    """Tokens that came once before cost less by far more than the nat that EXP-018 asks for."""
    text = tmp_path / "own.py"
    text.write_text("".join(path.read_text() for path in sorted((PACKAGE / "cli").glob("*.py"))))
    probe = ("probe", "--model", NAME, "--text-file", text, "--length", 512, "--depths", "0,200,400")
    depths = synapse(*probe, "--blocks", 16, "--json").record["result"]["depths"]
    assert [at["depth"] for at in depths] == [0, 200, 400]
    for at in depths:
        assert at["gain"]["mean"] > 1 and at["gain"]["low"] > 0, at
