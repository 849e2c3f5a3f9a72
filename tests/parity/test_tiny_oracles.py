"""TINY models against other engines: recorded logits, and the engines themselves where they are installed.

The recorded files hold what tools/update_tiny_golden.py says about them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from tests import oracles
from tests.float64_forward import float64_logits
from tests.tiny import pair_rows, tiny_tensors
from tests.tiny_cases import CASES, FULL, LONGROPE, NEW_TOKENS, TOKENS, YARN, positions, tokens, write_case
from tests.tiny_sessions import GOLDEN, LOGITS, TOLERANCE, assert_close, largest_difference

every_case = pytest.mark.parametrize("name", CASES)


# ---- the golden files


@every_case
def test_the_golden_is_of_this_file_and_these_tokens(tmp_path, name):
    assert write_case(tmp_path / "tiny.gguf", name) == GOLDEN["cases"][name]["sha256"]
    assert (
        GOLDEN["tokens"]["ids"] == tokens("llama-yarn-256")
        and tokens(name) == GOLDEN["tokens"]["ids"][: len(tokens(name))]
    )
    assert GOLDEN["cases"][name]["positions"] == positions(name)
    engines = {key.partition("/")[2] for key in LOGITS if key.startswith(name + "/")}
    expected = {"transformers", "llama.cpp"} if oracles.llama_cpp_takes(CASES[name]) else {"transformers"}
    assert engines == set(GOLDEN["cases"][name]["engines"]) == expected


SWAPPED = dataclasses.replace(LONGROPE, short=LONGROPE.long, long=LONGROPE.short)
CHANGES = [
    ("llama-rope-base", dict(rope_base=1e4)),
    ("llama-one-key-head", dict(norm_epsilon=1e-5)),
    ("llama-partial-rotary", dict(rotary_size=None)),
    ("llama-partial-rotary-wide", dict(rotary_size=None)),
    ("qwen2-tied", dict(rope_base=1e4)),
    *((name, dict(rope=None)) for name, tiny in CASES.items() if tiny.rope),
    *(
        (name, dict(rope=YARN))
        for name in ("llama-yarn-attn-factor", "llama-yarn-mscale", "llama-yarn-betas")
    ),
    *((name, dict(rope=SWAPPED)) for name in ("llama-longrope", "gemma3-longrope", "phi3-longrope")),
    # A window of 64 hides nothing here, and the layers keep their rotary base.
    *((name, dict(window=64)) for name, tiny in CASES.items() if tiny.window),
    *(
        (name, dict(window=CASES[name].window + 1))
        for name in ("mistral-window", "gemma3-tied", "gemma3-window-20")
    ),
    ("gemma3-tied", dict(local_rope_base=1e6)),
    ("gemma3-window-20", dict(local_rope_base=1e4)),
    ("gemma3-tied", dict(period=7)),
    ("gemma3-tied", dict(qk_norm=False)),
    ("gemma3-tied", dict(post_norms=False)),
    ("gemma3-tied", dict(gelu=False)),
    ("gemma3-tied", dict(embed_scaled=False)),
    ("gemma3-tied", dict(query_scale=1 / 4)),
    ("qwen3-tied", dict(qk_norm=False)),
    ("qwen3-tied", dict(rope_base=1e4)),
    ("phi3-window-partial-rotary", dict(rotary_size=None)),
]


@pytest.mark.parametrize(
    "name, change", CHANGES, ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_the_golden_sees_what_a_case_is_for(name, change):
    """Each feature that is switched off moves some logit by a thousand times the tolerance."""
    other = float64_logits(dataclasses.replace(CASES[name], **change), tokens(name))
    assert largest_difference(other, name) > 0.1


# ---- logits


@pytest.mark.parametrize("key", LOGITS)
def test_logits_are_the_other_engine_s(sessions, key):
    name = key.partition("/")[0]
    assert_close(sessions.logits(name)[positions(name)], LOGITS[key])


@every_case
def test_logits_are_those_of_float64_at_every_position(sessions, name):
    assert_close(sessions.logits(name), float64_logits(CASES[name], tokens(name)))


@pytest.mark.parametrize("name", ["llama-tied", "llama-biases", "qwen2-tied"])
def test_case_3_llama_rows_are_permuted_and_qwen2_rows_are_not(sessions, name):
    """transformers took the weights in half-split order; the file of a llama model holds them in pairs."""
    tiny = CASES[name]
    assert largest_difference(sessions.logits(name), name) <= TOLERANCE
    half_split = tiny_tensors(dataclasses.replace(tiny, arch="qwen2", width=tiny.D, qkv_bias=tiny.biased))

    def store_the_other_way(_: dict, tensors: dict[str, Any], part: str, heads: int) -> None:
        for key in [key for key in tensors if f".attn_{part}." in key]:
            rows = half_split[key]
            tensors[key] = rows if tiny.arch == "llama" else pair_rows(rows, heads, tiny.rotary)

    for part, heads in (("q", tiny.query_heads), ("k", tiny.kv_heads)):
        change = functools.partial(store_the_other_way, part=part, heads=heads)
        assert largest_difference(sessions.changed(name, change), name) > 0.1, part


@pytest.mark.parametrize(
    "name, head_size, rotary_size",
    [
        ("llama-tied", 32, 32),
        ("llama-key-length-48", 48, 48),
        ("llama-partial-rotary", 48, 32),
        ("llama-partial-rotary-wide", 48, 32),
    ],
)
def test_case_25_head_and_rotary_size_are_the_file_s(sessions, name, head_size, rotary_size):
    spec = sessions.of(name).spec
    assert (spec.head_size, spec.rotary_size) == (head_size, rotary_size)
    assert spec.head_size != spec.width // spec.query_heads or name == "llama-partial-rotary-wide"
    assert largest_difference(sessions.logits(name), name) <= TOLERANCE


def test_case_27_an_output_head_is_used_where_there_is_one(sessions):
    tied, untied = sessions.logits("llama-tied"), sessions.logits("llama-untied")
    assert np.abs(tied - untied).max() > 1
    assert largest_difference(untied, "llama-untied") <= TOLERANCE

    # All other weights are the same, so that the file without its head is the tied model.
    without = sessions.changed("llama-untied", lambda _, tensors: tensors.pop("output.weight"))
    np.testing.assert_array_equal(without, tied)


@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize("name", ["qwen2-tied", "llama-biases"])
def test_case_28_every_bias_counts(sessions, name, part):
    def switch_off(_: dict, tensors: dict[str, Any]) -> None:
        for i in range(CASES[name].layers):
            tensors[f"blk.{i}.attn_{part}.bias"] = np.zeros_like(tensors[f"blk.{i}.attn_{part}.bias"])

    assert largest_difference(sessions.logits(name), name) <= TOLERANCE
    assert largest_difference(sessions.changed(name, switch_off), name) > 0.1


# ---- scores and continuations


@pytest.mark.parametrize("rows", [32, 1])
@pytest.mark.parametrize("name", FULL)
def test_scores_are_those_of_the_golden_logits(sessions, name, rows):
    logits = LOGITS[f"{name}/transformers"].astype(np.float64)
    log_sum = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    nll = log_sum[:-1] - logits[np.arange(len(TOKENS) - 1), TOKENS[1:]]
    scores = sessions.of(name).score(TOKENS, rows=rows)
    assert np.abs(scores.nll - nll).max() <= TOLERANCE
    np.testing.assert_array_equal(scores.greedy, logits[:-1].argmax(-1))


GREEDY = (*FULL[:2], "llama-yarn", "mistral-window", "qwen3-tied", "gemma3-untied", "phi3")
"""Cases whose continuation is worth a look: others repeat themselves."""


@pytest.mark.parametrize("name", GREEDY)
def test_the_greedy_continuation_is_the_other_engines(sessions, name):
    expected = GOLDEN["cases"][name]["greedy"]
    assert len(set(expected)) >= 10
    made = sessions.of(name).generate(TOKENS, NEW_TOKENS, stop_ids=())
    assert list(made.token_ids) == expected


# ---- the engines themselves

LIVE = "llama-biases"


@pytest.mark.control
def test_logits_are_those_of_llama_cpp_now(sessions):
    try:
        pytest.importorskip("llama_cpp", reason="llama-cpp-python (extra control) is not installed")
    except FileNotFoundError as error:
        # The binding without a library of its own: LLAMA_CPP_LIB_PATH names a folder that has one.
        pytest.skip(f"llama_cpp: {error}")
    assert_close(sessions.logits(LIVE), oracles.llama_cpp_logits(sessions.path(LIVE), TOKENS))


@pytest.mark.control
def test_logits_are_those_of_transformers_now(sessions):
    oracles.require_transformers()
    model = oracles.transformers_model(CASES[LIVE])
    assert_close(sessions.logits(LIVE), oracles.transformers_logits(model, TOKENS))
