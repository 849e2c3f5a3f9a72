"""Perplexities against llama.cpp's: the runs of tools/parity_runs.py.

The suite scores the first chunks of the cheap ones; `--full` (./tools/test --full) and tools/parity.py
score all.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from synapse_jax.evals.score import Protocol, score_chunks
from synapse_jax.io.model_file import load
from synapse_jax.io.text_file import drop_trailing_newline, read_bytes
from synapse_jax.runtime.session import Session
from synapse_jax.spec.digest import sha256_tokens
from synapse_jax.spec.rope_scaling import parse_rope_scaling
from synapse_jax.spec.runtime import RuntimeProfile
from tools.corpus import corpus_path
from tools.parity_runs import RUNS, read_golden, worst_difference

GOLDEN = read_golden()
CONTEXT = {"smollm2-135m-instruct": 2048, "gemma-3-270m": 1024}
"""Context of the sessions that several runs of the suite share."""


@functools.cache
def model(name: str):
    return load(name)


@functools.cache
def text_ids(name: str) -> list[int]:
    text, dropped = drop_trailing_newline(read_bytes(corpus_path()))
    assert dropped
    return model(name).tokenizer.encode(text)


@functools.lru_cache(maxsize=1)
def session(name: str, rope: str | None, context: int) -> Session:
    scaling = None if rope is None else parse_rope_scaling(rope)
    return Session(model(name), RuntimeProfile(context=context, rope=scaling), ready=[])


@pytest.mark.parametrize("name", GOLDEN["models"])
def test_goldens_are_of_these_models_and_this_text(name):
    golden = GOLDEN["models"][name]
    assert golden["sha256"] == model(name).sha256()
    assert golden["tokens"] == {"count": len(text_ids(name)), "sha256": sha256_tokens(text_ids(name))}
    assert len(text_ids(name)) >= 70_000


def test_goldens_hold_every_run():
    assert set(GOLDEN["runs"]) == {run.name for run in RUNS}
    for run in RUNS:
        whole = GOLDEN["models"][run.model]["tokens"]["count"] // run.n_ctx
        assert len(GOLDEN["runs"][run.name]["running_perplexity"]) == (run.chunks or whole)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_running_perplexity_equals_llama_cpp(run, full):
    if not (run.suite_chunks or full):
        pytest.skip("long: --full or tools/parity.py")
    golden = GOLDEN["runs"][run.name]["running_perplexity"]
    tokenizer = model(run.model).tokenizer
    protocol = Protocol(
        run.n_ctx,
        bos_id=tokenizer.bos_id if tokenizer.add_bos else None,
        chunks=len(golden) if full else run.suite_chunks,
    )
    evaluated = session(run.model, run.rope, max(run.n_ctx, CONTEXT[run.model]))
    chunks = protocol.cut(text_ids(run.model))
    scored = list(score_chunks(evaluated, chunks, protocol, rows=min(512, run.n_ctx - 1)))
    assert sum(chunk.scored_tokens for chunk in scored) == len(scored) * (run.n_ctx - 1 - run.n_ctx // 2)
    ours = [chunk.running_perplexity for chunk in scored]
    assert worst_difference(ours, golden[: len(ours)]) <= run.tolerance


@pytest.mark.parametrize("name", [name for name, golden in GOLDEN["models"].items() if golden["first_nll"]])
def test_positions_equal_llama_cpp_s_logits(name):
    first_nll = np.array(GOLDEN["models"][name]["first_nll"])
    scores = session(name, None, CONTEXT[name]).score(text_ids(name)[: len(first_nll) + 1])
    assert np.abs(scores.nll - first_nll).max() <= 1e-3
