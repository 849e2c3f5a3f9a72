"""`synapse generate` with drawn tokens, log-probabilities, and text as it comes."""

from __future__ import annotations

import pytest

import synapse_jax as sj

PROMPT = "The heron --hears"
DRAWN = ["--temperature", 1.5, "--top-k", 100, "--top-p", 0.99, "--seed", 3]


def generate(synapse, tiny, *more):
    return synapse("generate", "--model", tiny, "--prompt", PROMPT, "--max-new-tokens", 40, *more)


def test_a_seed_gives_the_same_text_again_and_is_in_the_record(synapse, tiny):
    first = generate(synapse, tiny, *DRAWN, "--json").record["result"]
    assert generate(synapse, tiny, *DRAWN, "--json").record["result"] == first
    expected = sj.Sampling(temperature=1.5, top_k=100, top_p=0.99, seed=3)
    assert sj.Sampling(**first["sampling"]) == expected
    others = [*DRAWN[:-1], 4]
    assert generate(synapse, tiny, *others, "--json").record["result"]["text"] != first["text"]
    with sj.load(tiny) as model:
        session = sj.Session(model, ready=[])
        ids = model.tokenizer.encode(PROMPT)
        assert list(session.generate(ids, 40, sampling=expected).token_ids) == first["token_ids"]


@pytest.mark.parametrize("settings", [[], DRAWN], ids=["greedy", "drawn"])
def test_stream_equals_the_text_byte_for_byte(synapse, tiny, settings):
    whole = generate(synapse, tiny, *settings)
    streamed = generate(synapse, tiny, *settings, "--stream")
    assert (streamed.code, streamed.out) == (0, whole.out)
    assert len(whole.out) > 20


def test_logprobs_are_in_the_record(synapse, tiny):
    result = generate(synapse, tiny, "--logprobs", "--json").record["result"]
    assert len(result["logprobs"]) == len(result["token_ids"])
    assert all(value <= 0 for value in result["logprobs"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--stream", "--json"], "choose one"),
        (["--top-p", 0.5], "top_p 0.5 has no effect at temperature 0"),
        (["--temperature", -1], "temperature -1.0 is negative"),
        (["--temperature", "warm"], "--temperature"),
        (["--temperature", 1, "--top-p", 7], "top_p 7.0"),
        (["--seed", -1], "seed -1"),
    ],
)
def test_bad_settings_are_refused(synapse, tiny, given, message):
    assert message in generate(synapse, tiny, *given).refusal
