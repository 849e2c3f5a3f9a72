"""What `synapse score` takes, what it refuses, and what it says while it runs."""

from __future__ import annotations

import itertools
import re

import pytest

import synapse_jax as sj
from synapse_jax.evals.score import Protocol, score_chunks
from tests.e2e.conftest import CONTEXT, as_argument, some_ids
from tests.tiny import write_tiny


def score(synapse, model, ids, *more):
    return synapse("score", "--model", model, "--tokens", as_argument(ids), "--context", 32, "--json", *more)


def progress_of(lines: str) -> list[tuple[int, int]]:
    """(done, total) of the progress lines of scoring."""
    found = re.findall(r"^score: (\d+)/(\d+) positions", lines, re.MULTILINE)
    return [(int(done), int(total)) for done, total in found]


def test_context_beyond_trained_length_fails_explicitly(synapse, tiny):
    ids = as_argument(some_ids(2 * CONTEXT + 2))
    for command in (["score", "--tokens", ids], ["generate", "--tokens", ids], ["graph", "list"]):
        beyond = synapse(*command, "--model", tiny, "--context", CONTEXT + 1)
        assert re.search(rf"context {CONTEXT + 1}\b.*\b{CONTEXT} positions", beyond.refusal)
    # The context is wrong before the input is: one chunk of it would not fit either.
    assert str(CONTEXT) in synapse("score", "--model", tiny, "--tokens", "1", "--context", 5000).refusal
    given = ["score", "--model", tiny, "--tokens", ids, "--scoring-rows", 32, "--json"]
    record = synapse(*given, "--context", CONTEXT).record
    assert record["runtime"]["context"] == CONTEXT
    assert record["runtime"]["rope"]["trained_context"] == CONTEXT
    assert [chunk["scored_tokens"] for chunk in record["result"]["chunks"]] == [31, 31]


def test_cli_tokens_file_matches_inline_tokens(synapse, tiny, tmp_path):
    ids = some_ids(100)
    inline = score(synapse, tiny, ids).record
    path = tmp_path / "tokens"
    for text in ("\n".join(map(str, ids)), ", ".join(map(str, ids)), str(ids)):
        path.write_text(text)
        given = ["score", "--model", tiny, "--context", 32, "--json", "--tokens-file", path]
        finished = synapse(*given, "--progress", "lines")
        for part in ("tokens", "result", "fingerprints", "runtime", "model"):
            assert finished.record[part] == inline[part]
        done = progress_of(finished.err)
        assert (done[0], done[-1]) == ((0, 93), (93, 93))
        assert progress_of(synapse(*given, "--progress", "none").err) == []


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"1 2 x3", "token 2 at character 4 is 'x3'"),
        (b"1,,2", "token 1 at character 2 is empty"),
        (b"1 -2", "token 1 at character 2 is '-2'"),
        (b"[1, 2.5]", "token 1 is '2.5'"),
        (b"[1, 2", "not a JSON array"),
        (b"1 288", "token 1 is 288, outside the vocabulary of 288"),
        (b"1 \xff", "byte 0xFF at offset 2"),
        (b"", "holds no token ids"),
    ],
)
def test_cli_rejects_malformed_tokens_file(synapse, tiny, tmp_path, content, place):
    path = tmp_path / "bad.tokens"
    path.write_bytes(content)
    for command in ("score", "generate"):
        refusal = synapse(command, "--model", tiny, "--context", 32, "--tokens-file", path).refusal
        assert str(path) in refusal and place in refusal


def test_scoring_arguments_are_validated(synapse, tiny):
    ids = some_ids(64)
    for flag, value in [
        ("--scoring-rows", 0),
        ("--scoring-rows", 513),
        ("--scoring-rows", -1),
        ("--chunks", 0),
        ("--chunks", 3),
        ("--score-last", 0),
        ("--score-last", 32),
        ("--context", 2),
        ("--context", 0),
    ]:
        refusal = score(synapse, tiny, ids, flag, value).refusal
        assert flag[2:] in refusal and re.search(rf"(?<!\d){value}\b", refusal), (flag, value, refusal)

    with sj.load(tiny) as model:
        session = sj.Session(model, ready=[])
        for arguments in (
            {"start": 0},
            {"start": 5, "stop": 5},
            {"start": 6, "stop": 5},
            {"stop": 65},
            {"rows": 0},
            {"rows": 513},
        ):
            with pytest.raises(sj.InputError):
                session.score(ids, **arguments)
        for wrong in ([], [1, 288], [1, -1], [[1, 2]], [1.0, 2.0], some_ids(CONTEXT + 1)):
            with pytest.raises(sj.InputError):
                session.score(wrong)
        assert len(session.score(ids, rows=32).nll) == CONTEXT - 1


@pytest.mark.parametrize(("rows", "longest_step"), [(31, 31), (7, 7), (1, 16)])
def test_score_reports_progress_through_every_position(tiny, rows, longest_step):
    protocol = Protocol(32)
    chunks = protocol.cut(some_ids(100))
    seen: list[tuple[int, int]] = []
    with sj.load(tiny) as model:
        session = sj.Session(model, sj.RuntimeProfile(context=32), ready=[])
        list(score_chunks(session, chunks, protocol, rows=rows, progress=lambda *at: seen.append(at)))
    # Three chunks of 31 evaluated positions: the last token of a chunk is only a target.
    assert (seen[0], seen[-1]) == ((0, 93), (93, 93))
    assert {total for _, total in seen} == {93}
    sizes = [after - before for (before, _), (after, _) in itertools.pairwise(seen)]
    assert min(sizes) >= 1 and max(sizes) == longest_step
    assert {31, 62} <= {done for done, _ in seen}


def test_cli_score_rejects_input_shorter_than_one_chunk(synapse, tiny, tiny_bos, tmp_path):
    output, trace = tmp_path / "record", tmp_path / "trace"
    for count in (1, 31):
        refusal = score(synapse, tiny, some_ids(count), "--output", output, "--trace", trace).refusal
        assert re.search(rf"\b{count} tokens\b.*\b32\b", refusal)
    text = tmp_path / "empty"
    # A lone newline is dropped, so it is an empty text too; BOS alone is one token.
    for content, model, count in ((b"", tiny, 0), (b"\n", tiny, 0), (b"", tiny_bos, 1)):
        text.write_bytes(content)
        refusal = synapse("score", "--model", model, "--text-file", text, "--context", 32).refusal
        assert re.search(rf"\b{count} tokens\b.*\b32\b", refusal)
    assert sorted(tmp_path.iterdir()) == [text]


@pytest.mark.parametrize(("count", "chunks", "noted"), [(32, 1, True), (63, 1, True), (64, 2, False)])
def test_a_text_below_two_chunks_is_scored_with_a_note(synapse, tiny, count, chunks, noted):
    finished = score(synapse, tiny, some_ids(count), "--progress", "none")
    result = finished.record["result"]
    assert len(result["chunks"]) == chunks and result["scored_tokens"] == 15 * chunks
    note = f"llama-perplexity wants at least 64 tokens, two chunks; there are {count}"
    assert (note in finished.err) == noted
    assert finished.err.count("\n") == noted


def test_perplexity_error_needs_two_targets(synapse, tiny):
    ids = as_argument(some_ids(4))
    given = ["score", "--model", tiny, "--tokens", ids, "--context"]
    three = synapse(*given, 3, "--json").record["result"]
    assert (three["scored_tokens"], three["perplexity_error"]) == (1, None)
    assert "±" not in synapse(*given, 3).out
    last = synapse(*given, 4, "--score-last", 1, "--json").record["result"]
    assert (last["scored_tokens"], last["perplexity_error"]) == (1, None)
    two = synapse(*given, 4, "--score-last", 2, "--json").record["result"]
    assert two["scored_tokens"] == 2 and two["perplexity_error"] > 0
    assert "context 2" in synapse(*given, 2).refusal


def test_a_name_out_of_a_file_cannot_command_the_terminal(synapse, tmp_path):
    path = tmp_path / "named.gguf"

    def name(metadata, tensors):
        metadata["general.name"] = "tiny\x1b[2J\nmodel"

    write_tiny(path, context=CONTEXT, mutate=name)
    shown = synapse("score", "--model", path, "--tokens", as_argument(some_ids(64)), "--context", 32)
    assert shown.code == 0 and "\x1b" not in shown.out and "tiny\\x1b[2J\\nmodel" in shown.out
