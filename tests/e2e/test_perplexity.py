"""`synapse score` against the protocol, evaluated here from logits in float64."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest

import synapse_jax as sj
from tests.e2e.conftest import as_argument, some_ids

TEXT = "The heron in the reeds hears the other heron, and then there is rain on the inner river. " * 3


def sha256_of(ids) -> str:
    return hashlib.sha256(np.asarray(ids, "<i4").tobytes()).hexdigest()


def reference(session: sj.Session, chunks: np.ndarray, first: int):
    """NLL and greedy tokens of positions `first` … n_ctx − 1 of each chunk: two arrays [chunks, n]."""
    nll, greedy = [], []
    for ids in chunks:
        logits = session.logits(ids).astype(np.float64)[first - 1 : -1]
        top = logits.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
        nll.append(log_sum - logits[np.arange(len(logits)), ids[first:]])
        greedy.append(logits.argmax(axis=1))
    return np.array(nll), np.array(greedy)


def check_result(record, trace_lines, chunks, first, nll, greedy):
    """Every figure of a score record and its trace against the reference."""
    result = record["result"]
    count = nll.size
    mean = nll.sum() / count
    perplexity = math.exp(mean)
    sigma = math.sqrt(((nll**2).sum() / count - mean**2) / (count - 1))
    assert result["scored_tokens"] == count
    assert result["mean_nll"] == pytest.approx(mean, abs=1e-5)
    assert result["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    assert result["perplexity_error"] == pytest.approx(sigma * perplexity, rel=1e-4)
    assert [chunk["index"] for chunk in result["chunks"]] == list(range(len(chunks)))
    for index, chunk in enumerate(result["chunks"]):
        assert chunk["scored_tokens"] == nll.shape[1]
        assert chunk["nll_sum"] == pytest.approx(nll[index].sum(), rel=1e-5)
        assert chunk["nll_square_sum"] == pytest.approx((nll[index] ** 2).sum(), rel=1e-5)
        assert chunk["running_perplexity"] == pytest.approx(math.exp(nll[: index + 1].mean()), rel=1e-5)

    lines = [json.loads(line) for line in trace_lines]
    assert [set(line) for line in lines] == [{"chunk", "position", "token", "nll", "greedy"}] * count
    n_ctx = chunks.shape[1]
    places = [(index, position) for index in range(len(chunks)) for position in range(first, n_ctx)]
    assert [(line["chunk"], line["position"]) for line in lines] == places
    assert [line["token"] for line in lines] == [int(chunks[place]) for place in places]
    assert [line["greedy"] for line in lines] == greedy.ravel().tolist()
    assert [line["nll"] for line in lines] == pytest.approx(nll.ravel().tolist(), abs=1e-4)
    # The sums are those of the traced figures, to the last bit.
    for index, chunk in enumerate(result["chunks"]):
        traced = [line["nll"] for line in lines if line["chunk"] == index]
        total = 0.0
        for value in traced:
            total += value
        assert chunk["nll_sum"] == total


@pytest.mark.parametrize("n_ctx", [32, 33])
@pytest.mark.parametrize("vocabulary", ["tiny", "tiny_bos"])
def test_cli_score_reports_perplexity_with_the_llama_protocol(synapse, request, tmp_path, vocabulary, n_ctx):
    model_path = request.getfixturevalue(vocabulary)
    text, trace = tmp_path / "text", tmp_path / "trace"
    text.write_bytes(f"{TEXT}\n\n".encode())
    record = synapse(
        "score", "--model", model_path, "--text-file", text, "--context", n_ctx, "--trace", trace, "--json"
    ).record

    with sj.load(model_path) as model:
        session = sj.Session(model, sj.RuntimeProfile(context=n_ctx), ready=[])
        # One of two newlines goes. BOS, where the vocabulary adds it, comes once before the whole text.
        plain = model.tokenizer.encode(f"{TEXT}\n", add_special=False)
        bos = model.tokenizer.bos_id if vocabulary == "tiny_bos" else None
        ids = plain if bos is None else [bos, *plain]
        count = len(ids) // n_ctx
        assert count >= 4 and len(ids) % n_ctx
        chunks = np.array(ids[: count * n_ctx]).reshape(count, n_ctx)
        if bos is not None:
            assert bos not in chunks[1:, 0]
            chunks[:, 0] = bos
        first = n_ctx // 2 + 1
        nll, greedy = reference(session, chunks, first)

    assert nll.size == count * (n_ctx - 1 - n_ctx // 2)
    check_result(record, trace.read_text().splitlines(), chunks, first, nll, greedy)
    result, tokens = record["result"], record["tokens"]
    assert (result["protocol"], result["n_ctx"], result["dropped_trailing_newline"]) == (
        "llama-perplexity",
        n_ctx,
        True,
    )
    assert (tokens["count"], tokens["sha256"]) == (len(ids), sha256_of(ids))
    assert tokens["evaluated_count"] == chunks.size
    assert tokens["evaluated_sha256"] == sha256_of(chunks.ravel())


def test_given_tokens_are_scored_as_they_are_but_for_the_chunk_starts(synapse, tiny_bos):
    ids = some_ids(64)
    record = synapse(
        "score", "--model", tiny_bos, "--tokens", as_argument(ids), "--context", 32, "--json"
    ).record
    with sj.load(tiny_bos) as model:
        bos = model.tokenizer.bos_id
    evaluated = [bos, *ids[1:32], bos, *ids[33:]]
    assert (record["tokens"]["count"], record["tokens"]["sha256"]) == (64, sha256_of(ids))
    assert record["tokens"]["evaluated_sha256"] == sha256_of(evaluated)
    assert record["result"]["dropped_trailing_newline"] is None


@pytest.mark.parametrize("last", [1, 5, 31])
def test_score_last_scores_the_last_targets_and_is_not_called_llama_perplexity(synapse, tiny, tmp_path, last):
    ids, trace = some_ids(70), tmp_path / "trace"
    finished = synapse(
        *("score", "--model", tiny, "--tokens", as_argument(ids), "--context", 32, "--score-last", last),
        *("--trace", trace, "--json"),
    )
    chunks = np.array(ids[:64]).reshape(2, 32)
    with sj.load(tiny) as model:
        session = sj.Session(model, sj.RuntimeProfile(context=32), ready=[])
        nll, greedy = reference(session, chunks, 32 - last)
    assert nll.size == 2 * last
    check_result(finished.record, trace.read_text().splitlines(), chunks, 32 - last, nll, greedy)
    assert "llama" not in finished.record["result"]["protocol"]
    assert str(last) in finished.record["result"]["protocol"]


def test_chunks_limits_the_run_and_rows_a_step_do_not_change_it(synapse, tiny):
    given = ["score", "--model", tiny, "--tokens", as_argument(some_ids(130)), "--context", 32, "--json"]
    whole = synapse(*given).record
    two = synapse(*given, "--chunks", 2, "--scoring-rows", 7).record
    assert len(whole["result"]["chunks"]) == 4
    assert two["result"]["chunks"] == whole["result"]["chunks"][:2]
    assert (two["result"]["scoring_rows"], two["tokens"]["evaluated_count"]) == (7, 64)
    assert two["tokens"]["sha256"] == whole["tokens"]["sha256"]
    one = synapse(*given, "--scoring-rows", 1).record["result"]
    assert one["perplexity"] == pytest.approx(whole["result"]["perplexity"], rel=1e-4)


def test_table_shows_what_the_record_holds(synapse, tiny):
    given = ["score", "--model", tiny, "--tokens", as_argument(some_ids(64)), "--context", 32]
    record, shown = synapse(*given, "--json").record, synapse(*given)
    result = record["result"]
    assert shown.code == 0
    assert f"{result['perplexity']:.4f} ± {result['perplexity_error']:.4f}" in shown.out
    assert record["fingerprints"]["profile"] in shown.out
    assert record["fingerprints"]["entries"][0]["program"] in shown.out
