"""What only real vocabularies show: the empty prompt, tokens that end a text, chat without a template."""

from __future__ import annotations

import json

import numpy as np
import pytest

from synapse_jax.io.model_file import ModelFile

SMOL, GEMMA = "smollm2-135m-instruct", "gemma-3-270m"
PROMPTS = {SMOL: "The heron", GEMMA: ""}


@pytest.fixture(scope="module", autouse=True)
def _fetched(smol_path, gemma_path):
    """Both models are in the cache: nothing is fetched while a command runs."""


@pytest.fixture
def generate(synapse, tmp_path):
    """Runs the command on the prompt of a model; gives what it printed and the record."""

    def run(model: str, new: int):
        output = tmp_path / "record.json"
        given = ["--prompt", PROMPTS[model], "--max-new-tokens", new, "--output", output]
        finished = synapse("generate", "--model", model, *given)
        assert finished.code == 0, finished.err
        return finished.out, json.loads(output.read_text())

    return run


@pytest.fixture(scope="module")
def known() -> dict:
    """What `usual` has found; it lives as long as the module."""
    return {}


@pytest.fixture
def usual(generate, known):
    """Gives text and result of the first two tokens after the prompt of a model."""

    def run(model: str):
        if model not in known:
            out, record = generate(model, 2)
            known[model] = out, record["result"]
        return known[model]

    return run


def prefer(monkeypatch: pytest.MonkeyPatch, token: int, usual: int) -> None:
    """Makes models say one token where they would say another: the rows of a tied embedding decide that."""
    read = ModelFile.read_weight

    def changed(model: ModelFile, name: str) -> np.ndarray:
        array = read(model, name)
        if name == "embed":
            array[token] = np.float32(1.1) * array[usual]
        return array

    monkeypatch.setattr(ModelFile, "read_weight", changed)


def test_case_33_an_empty_prompt_is_bos_or_refused(synapse, usual):
    refusal = synapse("generate", "--model", SMOL, "--prompt", "").refusal
    assert "--prompt is empty and the vocabulary adds no BOS" in refusal
    out, result = usual(GEMMA)
    assert (result["prompt_tokens"], len(result["token_ids"]), result["finish_reason"]) == (1, 2, "length")
    assert out == result["text"] + "\n" != "\n"


@pytest.mark.parametrize("model", [SMOL, GEMMA])
def test_case_33_without_new_tokens_the_prompt_is_evaluated(generate, model):
    out, record = generate(model, 0)
    result = record["result"]
    assert (out, result["text"], result["token_ids"], result["finish_reason"]) == ("\n", "", [], "length")
    assert record["tokens"]["evaluated_count"] == result["prompt_tokens"] == {SMOL: 3, GEMMA: 1}[model]


@pytest.mark.parametrize(
    "model, end, kept",
    [
        pytest.param(SMOL, 2, 1, id="smol im_end"),
        pytest.param(SMOL, 0, 0, id="smol endoftext at once"),
        pytest.param(GEMMA, 1, 0, id="gemma eos at once"),
        pytest.param(GEMMA, 106, 1, id="gemma end_of_turn"),
    ],
)
def test_case_34_every_end_token_ends_the_text(generate, usual, monkeypatch, model, end, kept):
    shown, before = usual(model)
    assert end not in before["token_ids"]
    prefer(monkeypatch, end, before["token_ids"][kept])
    out, record = generate(model, 2)
    result = record["result"]
    assert (result["token_ids"], result["finish_reason"]) == (before["token_ids"][:kept], "stop")
    assert out == result["text"] + "\n" and shown.startswith(result["text"])
    assert (result["text"] == "") == (kept == 0)
    assert record["tokens"]["evaluated_count"] == result["prompt_tokens"] + kept


def test_case_35_a_model_without_a_template_says_so(synapse, gemma_path):
    finished = synapse("generate", "--model", GEMMA, "--chat", "--prompt", "hi")
    assert (finished.code, finished.out) == (2, "")
    assert finished.error.startswith(f"synapse: error: {gemma_path}: has no chat template")
