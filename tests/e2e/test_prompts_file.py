"""`synapse generate --prompts-file`: many prompts through one session, and what of each is reused."""

from __future__ import annotations

import json

import pytest

import synapse_jax as sj
from synapse_jax.spec.digest import sha256_tokens
from tests.e2e.conftest import CONTEXT, as_argument, some_ids

TEXTS = ["The heron ", "The heron --hears", "rain"]
IDS = some_ids(20)


@pytest.fixture
def prompts(tmp_path):
    """Writes a prompts file of values."""

    def write(*lines) -> str:
        path = tmp_path / "prompts.jsonl"
        path.write_text(
            "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        )
        return str(path)

    return write


def generate(synapse, tiny, *more):
    return synapse("generate", "--model", tiny, "--max-new-tokens", 6, *more)


@pytest.mark.parametrize("kv_dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("reuse", [True, False])
def test_many_prompts_give_the_texts_of_single_runs(synapse, tiny, prompts, reuse, kv_dtype):
    lines = [{"prompt": text} for text in TEXTS] + [{"tokens": IDS}, {"tokens": IDS[:15] + [7, 8]}]
    path = prompts(*lines)
    more = ["--kv-dtype", kv_dtype, "--page-size", 16, "--json"]
    given = ["--prompts-file", path, *(["--reuse-prefix"] if reuse else [])]
    record = generate(synapse, tiny, *given, *more).record
    assert set(record["result"]) == {"prompts"} and record["runtime"]["kv_dtype"] == kv_dtype
    results = record["result"]["prompts"]
    assert len(results) == len(lines)
    with sj.load(tiny) as model:
        ids = [model.tokenizer.encode(text) for text in TEXTS] + [IDS, IDS[:15] + [7, 8]]
    evaluated = []
    for line, tokens, result in zip(lines, ids, results, strict=True):
        alone = ["--prompt", line["prompt"]] if "prompt" in line else ["--tokens", as_argument(tokens)]
        single = generate(synapse, tiny, *alone, *more).record
        for field in ("text", "token_ids", "finish_reason", "prompt_tokens", "sampling", "chat"):
            assert result[field] == single["result"][field], field
        start = result["reused_tokens"]
        rest = (tokens + result["token_ids"][:-1])[start:]
        assert result["tokens"] == {
            "count": len(tokens),
            "sha256": sha256_tokens(tokens),
            "evaluated_count": len(rest),
            "evaluated_sha256": sha256_tokens(rest),
        }
        evaluated += rest
    assert ids[1][: len(ids[0])] == ids[0]
    expected = [0, len(ids[0]), 0, 0, 15] if reuse else [0] * 5
    assert [result["reused_tokens"] for result in results] == expected
    whole = [token for tokens in ids for token in tokens]
    assert record["tokens"] == {
        "count": len(whole),
        "sha256": sha256_tokens(whole),
        "evaluated_count": len(evaluated),
        "evaluated_sha256": sha256_tokens(evaluated),
    }


def test_texts_are_printed_in_order_and_figures_are_said(synapse, tiny, prompts):
    path = prompts({"tokens": IDS}, {"tokens": IDS})
    finished = generate(synapse, tiny, "--prompts-file", path, "--reuse-prefix")
    record = generate(synapse, tiny, "--prompts-file", path, "--reuse-prefix", "--json").record
    texts = [result["text"] for result in record["result"]["prompts"]]
    assert finished.code == 0 and finished.out == "".join(text + "\n" for text in texts)
    assert "prompt 1: 20 prompt tokens, 6 new, length" in finished.err
    assert "prompt 2: 20 prompt tokens, 19 reused, 6 new, length" in finished.err
    last = [line for line in finished.err.splitlines() if line.startswith("generate: ")][-1]
    assert f"{2 * 25}/{2 * 25} tokens" in last and "KV 0.0 MB of 0." in last and "25 positions of" in last


def test_memory_follows_the_longest_prompt(synapse, tiny, prompts):
    path = prompts({"tokens": IDS}, {"tokens": some_ids(CONTEXT - 5)})
    record = generate(synapse, tiny, "--prompts-file", path, "--page-size", 16, "--json").record
    assert record["memory"]["kv_positions"] == CONTEXT
    assert record["memory"]["kv_capacity"] == CONTEXT
    assert [result["finish_reason"] for result in record["result"]["prompts"]] == ["length"] * 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "line 1"),
        (['{"prompt": "a"}', '{"promt": "b"}'], "line 2: is not one object"),
        (['{"tokens": [1]}', "", '{"tokens": [288]}'], "line 3"),
        (['{"tokens": [1]}', '{"tokens": []}'], "line 2: tokens is not a list"),
        (['{"tokens": [1]}', '{"prompt": ""}'], "line 2 is empty and the vocabulary adds no BOS"),
        ([], "holds no prompts"),
    ],
)
def test_bad_lines_are_refused_before_anything_runs(synapse, tiny, prompts, lines, message):
    path = prompts(*lines)
    refusal = generate(synapse, tiny, "--prompts-file", path).refusal
    assert message in refusal and path in refusal


def test_a_prompt_above_the_context_is_refused(synapse, tiny, prompts):
    path = prompts({"tokens": IDS}, {"tokens": some_ids(CONTEXT - 4)})
    refusal = generate(synapse, tiny, "--prompts-file", path).refusal
    assert f"need {CONTEXT + 1} positions" in refusal and str(CONTEXT) in refusal


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--stream"], "--stream shows one text"),
        (["--chat"], "--chat takes a text, not --prompts-file"),
        (["--prompt", "a"], "--prompts-file"),
        (["--system", "a"], "--system goes with --chat"),
        (["--kv-dtype", "f8"], "f8"),
    ],
)
def test_flags_that_do_not_go_with_it(synapse, tiny, prompts, more, message):
    path = prompts({"tokens": IDS})
    assert message in generate(synapse, tiny, "--prompts-file", path, *more).refusal


def test_reuse_needs_a_prompts_file(synapse, tiny):
    refusal = generate(synapse, tiny, "--prompt", "a", "--reuse-prefix").refusal
    assert "--reuse-prefix goes with --prompts-file" in refusal


def test_a_missing_file_is_named(synapse, tiny, tmp_path):
    assert "nowhere" in generate(synapse, tiny, "--prompts-file", tmp_path / "nowhere").refusal
