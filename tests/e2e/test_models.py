"""`synapse models`: what has a name, under which licence, and whether it is here."""

from __future__ import annotations

from synapse_jax.io.catalog import CATALOG, entry_path


def test_models_lists_licence_size_and_digest(synapse, smol_path):
    models = {model["name"]: model for model in synapse("models", "--json").record["result"]["models"]}
    assert list(models) == list(CATALOG)
    smol = models["smollm2-135m-instruct"]
    assert (smol["licence"], smol["bytes"], smol["path"]) == ("Apache-2.0", 98362432, str(smol_path))
    gemma = models["gemma-3-270m"]
    assert gemma["sha256"] == "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
    assert "ai.google.dev/gemma/terms" in gemma["terms"]
    table = synapse("models").out
    assert all(text in table for text in (smol["sha256"], gemma["sha256"], "Apache-2.0"))


def test_models_fetches_one_and_lists_it(synapse, smol_path):
    record = synapse("models", "--fetch", "smollm2-135m-instruct", "--json").record
    assert [model["path"] for model in record["result"]["models"]] == [str(smol_path)]
    assert smol_path == entry_path(CATALOG["smollm2-135m-instruct"])


def test_models_does_not_fetch_what_has_no_name(synapse):
    assert "no model of this name; smollm2-135m-instruct" in synapse("models", "--fetch", "nope").refusal


def test_a_model_that_is_not_here_is_listed_without_a_path(synapse, monkeypatch, tmp_path):
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path))
    models = synapse("models", "--json").record["result"]["models"]
    *fetched, own = [model["path"] for model in models]
    assert fetched == [None] * (len(CATALOG) - 1) and own.endswith("synapse-python-3m-Q8_0.gguf")
    assert synapse("models").out.count("not fetched yet") == len(CATALOG) - 1
