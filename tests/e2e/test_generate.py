"""`synapse generate`: its text, and exactly how many positions it may use."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import synapse_jax as sj
from synapse_jax.runtime import packing
from synapse_jax.spec.digest import sha256_tokens
from tests.e2e.conftest import CONTEXT, as_argument, some_ids
from tests.tiny import write_tiny

PROMPT = "The heron --hears"


@pytest.fixture(scope="module")
def greedy(tiny) -> list[int]:
    """Eight greedy tokens after the prompt, each from the logits of a whole evaluation."""
    with sj.load(tiny) as model:
        session = sj.Session(model, ready=[])
        ids = model.tokenizer.encode(PROMPT)
        for _ in range(8):
            ids.append(int(session.logits(ids, [len(ids) - 1])[0].argmax()))
        return ids[-8:]


def test_cli_generate_reports_decoded_text(synapse, tiny, tmp_path, greedy):
    path = tmp_path / "prompt"
    path.write_text(PROMPT)
    with sj.load(tiny) as model:
        ids, text = model.tokenizer.encode(PROMPT), model.tokenizer.decode(greedy)
    for flag, value in (
        ("--prompt", PROMPT),
        ("--prompt-file", path),
        ("--tokens", as_argument(ids)),
    ):
        given = ["generate", "--model", tiny, flag, value, "--max-new-tokens", 8]
        record = synapse(*given, "--json").record
        assert record["result"] == {
            "text": text,
            "token_ids": greedy,
            "finish_reason": "length",
            "prompt_tokens": len(ids),
            "reused_tokens": 0,
            "reused_generated_tokens": 0,
            "reuse_note": None,
            "logprobs": None,
            "sampling": dataclasses.asdict(sj.Sampling()),
            "chat": None,
        }
        assert (record["tokens"]["count"], record["tokens"]["sha256"]) == (len(ids), sha256_tokens(ids))
        # The last new token is not evaluated.
        assert record["tokens"]["evaluated_sha256"] == sha256_tokens(ids + greedy[:-1])
        assert record["tokens"]["evaluated_count"] == record["memory"]["kv_positions"] == len(ids) + 7
    shown = synapse(*given)
    assert (shown.code, shown.out) == (0, f"{text}\n")
    assert record["fingerprints"]["profile"] in shown.err


def test_the_record_tells_what_the_device_was_given(synapse, tiny, monkeypatch):
    pack, ids = packing.pack_rows, some_ids(9)

    def changed(*given):
        rows = pack(*given)
        rows.token_T[3] += 1
        return rows

    monkeypatch.setattr(packing, "pack_rows", changed)
    given = ["--tokens", as_argument(ids), "--max-new-tokens", 1, "--json"]
    tokens = synapse("generate", "--model", tiny, *given).record["tokens"]
    ids[3] += 1
    assert tokens["evaluated_sha256"] == sha256_tokens(ids) != tokens["sha256"]


def test_a_stop_token_ends_the_text_and_is_not_in_it(synapse, tmp_path, greedy):
    path = tmp_path / "stopping.gguf"
    at = next(index for index in range(2, 8) if greedy[index] not in greedy[:index])

    def stop_there(metadata, tensors):
        metadata["tokenizer.ggml.eos_token_id"] = greedy[at]

    write_tiny(path, context=CONTEXT, mutate=stop_there)
    given = ["generate", "--model", path, "--prompt", PROMPT, "--json", "--max-new-tokens"]
    record = synapse(*given, 8).record
    assert record["result"]["token_ids"] == greedy[:at]
    assert record["result"]["finish_reason"] == "stop"
    assert record["tokens"]["evaluated_count"] == record["result"]["prompt_tokens"] + at
    # As many tokens as asked for came without it.
    record = synapse(*given, at).record
    assert (record["result"]["token_ids"], record["result"]["finish_reason"]) == (greedy[:at], "length")


@pytest.mark.parametrize("key", ["eos_token_id", "eot_token_id"])
def test_case_34_an_end_token_outside_the_vocabulary_is_refused(synapse, tmp_path, key):
    path = tmp_path / "tiny.gguf"
    write_tiny(path, mutate=lambda metadata, _: metadata.update({f"tokenizer.ggml.{key}": 288}))
    # The tokens need no vocabulary, but where they end does.
    refusal = synapse("generate", "--model", path, "--tokens", "1 2 3").refusal
    assert f"{path}: tokenizer.ggml.{key} is 288, outside the vocabulary of 288 tokens" in refusal


@pytest.mark.parametrize("new", [0, 1, 2])
@pytest.mark.parametrize("length", [CONTEXT - 2, CONTEXT - 1, CONTEXT, CONTEXT + 1])
def test_exactly_the_context_is_usable(synapse, tiny, length, new):
    ids = some_ids(length)
    finished = synapse(
        "generate", "--model", tiny, "--tokens", as_argument(ids), "--max-new-tokens", new, "--json"
    )
    needed = length + max(new - 1, 0)
    if needed > CONTEXT:
        assert re.search(rf"\b{needed} positions.*\b{CONTEXT}$", finished.refusal)
        return
    record = finished.record
    assert record["runtime"]["context"] == CONTEXT
    assert len(record["result"]["token_ids"]) == new
    assert record["result"]["finish_reason"] == "length"
    assert (record["result"]["text"] == "") == (new == 0)
    assert record["memory"]["kv_positions"] == record["tokens"]["evaluated_count"] == needed
    if new:
        with sj.load(tiny) as model:
            logits = sj.Session(model, ready=[]).logits(ids, [length - 1])
        assert record["result"]["token_ids"][0] == int(np.argmax(logits))


def test_a_smaller_context_is_kept_to(synapse, tiny):
    given = ["generate", "--model", tiny, "--context", 40, "--json"]
    record = synapse(*given, "--tokens", as_argument(some_ids(38)), "--max-new-tokens", 3).record
    assert (record["runtime"]["context"], record["memory"]["kv_positions"]) == (40, 40)
    finished = synapse(*given, "--tokens", as_argument(some_ids(41)), "--max-new-tokens", 0)
    assert re.search(r"\b41 tokens.*\b40$", finished.refusal)
    # The default of 128 new tokens is not cut to what is left either.
    assert re.search(
        r"\b165 positions.*\b40$", synapse(*given, "--tokens", as_argument(some_ids(38))).refusal
    )


def test_an_empty_prompt_needs_a_bos(synapse, tiny, tiny_bos):
    for flag, value in (("--prompt", ""), ("--prompt-file", "/dev/null")):
        refusal = synapse("generate", "--model", tiny, flag, value).refusal
        assert flag in refusal and "BOS" in refusal
        record = synapse(
            "generate", "--model", tiny_bos, flag, value, "--json", "--max-new-tokens", 64
        ).record
        # BOS is the prompt, and the token after it ends the text at once.
        result = record["result"]
        assert (result["prompt_tokens"], result["text"], result["finish_reason"]) == (1, "", "stop")
        assert record["tokens"]["evaluated_count"] == 1


def test_white_space_is_a_prompt(synapse, tiny):
    result = synapse("generate", "--model", tiny, "--prompt", " \n", "--max-new-tokens", 2, "--json").record
    assert result["result"]["prompt_tokens"] == 2 and len(result["result"]["token_ids"]) == 2
