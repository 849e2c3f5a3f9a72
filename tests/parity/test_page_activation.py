"""Page activation in whole models: dense where it must be, and refused where it cannot be (AC-006-2 … 4)."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.graph.compile import lower
from synapse_jax.graph.entry import DECODE_ROLE, PROMPT_ROLE, Entry
from synapse_jax.graph.fingerprint import explain, profile_identity
from synapse_jax.ir.build import build
from synapse_jax.runtime import packing
from synapse_jax.runtime.evaluation import evaluate_tokens
from synapse_jax.runtime.prefix import NOTHING
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

PAGE = 64
TINIES = {
    "llama": Tiny(context=1024, layers=1),
    "mha": Tiny(context=1024, layers=1, query_heads=2, kv_heads=2),
    # The first layer slides; only the second one is approximated.
    "gemma3": Tiny("gemma3", context=1024, layers=2, period=2, window=40, rope_base=1e6),
}
MODELS = {name: TinyModel(tiny) for name, tiny in TINIES.items()}
IDS = np.random.RandomState(11).randint(0, 288, 900).astype(np.int32)
COVERING, SMALL = "pages:budget=1024,window=1", "pages:budget=32,window=16"


@pytest.fixture(scope="module")
def session_of():
    """Sessions by model, attention and KV dtype; each compiles once."""

    @functools.cache
    def session(name: str, attention: str, kv_dtype: str = "f32") -> Session:
        profile = RuntimeProfile(page_size=PAGE, attention=attention, kv_dtype=kv_dtype)
        return Session(MODELS[name], profile, ready=[])

    yield session
    session.cache_clear()


def decoded(session: Session, ids: np.ndarray, start: int, role: int) -> np.ndarray:
    """NLL of positions start + 1 … n − 1: a prompt of `start` tokens, then single rows of a role."""
    session.reset()
    runner = session._runner
    evaluate_tokens(runner, ids[:start], 0, NOTHING, lambda done: None, wants_logits=False)
    out = []
    for first in range(start, len(ids) - 1, 16):
        tokens = ids[first : min(first + 16, len(ids) - 1)]
        entry = runner.entry("decode", 1)
        segment = runner.segment(tokens, first, role=role)
        targets = ids[first + 1 : first + 1 + len(tokens)]
        batch = packing.decode_batch(entry, runner.ir, segment, turns=len(tokens), targets=targets)
        out.append(np.asarray(runner.call(entry, batch)[1])[: len(tokens), 0])
        runner.advance(first, len(tokens))
    return np.concatenate(out)


VARIANTS = [
    ("llama", COVERING, "f32"),
    ("llama", COVERING, "bf16"),
    ("llama", COVERING, "f16"),
    ("llama", "pages:budget=1024,window=1,page=64,sink=0,select=random", "f32"),
    ("llama", "pages:budget=1024,window=30,heads=query", "f32"),
    ("llama", "pages:budget=0,window=1024", "f32"),
    ("llama", "pages:budget=2147483632,window=2147483647,sink=2147483647", "f32"),
    ("mha", COVERING, "f32"),
    ("gemma3", COVERING, "f32"),
]


@pytest.mark.parametrize(("name", "attention", "kv_dtype"), VARIANTS)
def test_pages_covering_the_prefix_equal_dense(session_of, name, attention, kv_dtype):
    """Case 21 with it: prompts that end around the edges of selection and storage pages."""
    session, dense = session_of(name, attention, kv_dtype), session_of(name, "dense", kv_dtype)
    for start in (0, 15, 16, 17, 3 * 16 + 5, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE + 7):
        ids = IDS[: start + 36]
        expected = decoded(dense, ids, start, DECODE_ROLE)
        assert np.isfinite(expected).all()
        assert np.array_equal(decoded(session, ids, start, DECODE_ROLE), expected), start
    scores = session.score(ids, start + 1, rows=1)
    assert np.array_equal(scores.nll, expected)
    assert scores.positions_read.tolist() == list(range(start + 1, start + 36))


@pytest.mark.parametrize("attention", [SMALL, SMALL + ",select=random", SMALL + ",heads=query"])
def test_a_small_budget_changes_the_numbers(session_of, attention):
    session, dense = session_of("llama", attention), session_of("llama", "dense")
    scores = session.score(IDS[:400], 300, rows=1)
    expected = decoded(dense, IDS[:400], 299, DECODE_ROLE)
    assert np.isfinite(scores.nll).all() and np.abs(scores.nll - expected).max() > 0.1
    assert np.array_equal(scores.nll, session.score(IDS[:400], 300, rows=1).nll)
    # While sink, window and budget still hold everything, nothing is left out.
    # The window of row 78 still reaches the fourth page; before it lie the sink and two pages of the budget.
    few = session.score(IDS[:100], 1, rows=1)
    full = decoded(dense, IDS[:100], 0, DECODE_ROLE)
    assert np.array_equal(few.nll[:79], full[:79]) and few.nll[79] != full[79]


def test_prompt_tokens_stay_dense_even_alone_in_a_step(session_of):
    """AC-006-4: by their role. 641 tokens in steps of 64 leave one alone; so does a prompt that is reused."""
    session, dense = session_of("llama", SMALL), session_of("llama", "dense")
    prompt = IDS[:641]
    ends = []
    for one in (session, dense):
        one.reset()
        for first in range(0, 641, 64):
            logits = one.step(prompt[first : first + 64])
        ends.append(logits)
    assert np.array_equal(*ends)
    for reused in (0, 640):
        pages, full = (one.generate(prompt, 1, logprobs=True, reuse=True) for one in (session, dense))
        assert pages.reused_tokens == full.reused_tokens == reused
        assert (pages.token_ids, pages.logprobs) == (full.token_ids, full.logprobs)
    # In the entry that decodes, rows of the prompt role attend densely and those of the decode role do not.
    tail = IDS[:700]
    expected = decoded(dense, tail, 660, PROMPT_ROLE)
    assert np.array_equal(decoded(session, tail, 660, PROMPT_ROLE), expected)
    assert not np.array_equal(decoded(session, tail, 660, DECODE_ROLE), expected)
    assert np.array_equal(decoded(dense, tail, 660, DECODE_ROLE), expected)


REFUSED = [
    ("llama", "pages:budget=128,window=16,page=128", "page 128 does not divide the storage page of 64"),
    ("llama", "pages:budget=32,window=16,dense_layers=0", "dense_layers 0 hold all 1 layers"),
    (
        "llama",
        "pages:budget=32,window=16,dense_layers=0-3",
        "dense layer 3 is not one of the model's layers 0 … 0",
    ),
    ("gemma3", "pages:budget=32,window=16,dense_layers=1", "dense_layers 1 hold all 1 layers"),
    ("mistral", "pages:budget=32,window=16", "all 1 layers of the model have a sliding window of 100"),
]
WRONG = [
    ("pages", "'' is not an option"),
    ("pages:", "'' is not an option"),
    ("page:budget=32,window=16", "choose from dense, pages"),
    ("dense:budget=1", "dense takes no options"),
    ("pages:window=16", "budget must be given"),
    ("pages:page=16", "budget and window must be given"),
    ("pages:budget=40,window=16", "budget 40 is not a multiple of page 16"),
    ("pages:budget=48,window=16,page=24", "page 24 is not a power of two"),
    ("pages:budget=32,window=0", "window 0 is not an integer from 1 up"),
    ("pages:budget=32,window=-1", "window '-1' is not a whole number"),
    ("pages:budget=32.5,window=16", "budget '32.5' is not a whole number"),
    ("pages:budget=٣٢,window=16", "is not a whole number"),
    ("pages:budget=32,window=4294967296", "window 4294967296 is not an integer"),
    ("pages:budget=32,window=16,window=17", "window is there twice"),
    ("pages:budget=32,window=16,top=3", "'top=3' is not an option; the options are budget, window, page"),
    ("pages:budget=32,window=16,select=best", "select 'best' is not one of bound, random"),
    ("pages:budget=32,window=16,heads=all", "heads 'all' is not one of kv, query"),
    ("pages:budget=32,window=16,seed=3", "seed 3 belongs to select=random"),
    ("pages:budget=32,window=16,dense_layers=1;2", "'1;2' are not layers"),
    ("pages:budget=32,window=16,dense_layers=3-1", "3-1 is an empty range"),
]


def test_page_activation_is_named_and_rejected_where_unsupported():
    """AC-006-3."""
    spec = MODELS["llama"].spec
    named = {
        SMALL: "pages:budget=32,page=16,window=16,sink=1,select=bound,heads=kv,dense_layers=none",
        "pages:window=16,budget=32,seed=0,select=random,dense_layers=1+0":
            "pages:budget=32,page=16,window=16,sink=1,select=random,heads=kv,dense_layers=0+1,seed=0",
        "pages:budget=0,window=1,page=1,sink=0,heads=query,dense_layers=0-2+7":
            "pages:budget=0,page=1,window=1,sink=0,select=bound,heads=query,dense_layers=0+1+2+7",
    }  # fmt: skip
    for given, canonical in named.items():
        profile = RuntimeProfile(attention=given)
        assert profile.attention == canonical == RuntimeProfile(attention=canonical).attention
    identities = [
        profile_identity(build(spec, resolve(RuntimeProfile(attention=attention), spec)))
        for attention in ("dense", SMALL, SMALL + ",seed=0", SMALL + ",sink=2")
    ]
    assert identities[1] == identities[2]
    for other in (identities[0], identities[3]):
        assert explain(identities[1], other) == ["ir", "attention"]

    for name, attention, reason in REFUSED:
        model = MODELS.get(name) or TinyModel(Tiny(context=1024, layers=1, window=100))
        with pytest.raises(InputError) as refusal:
            Session(model, RuntimeProfile(page_size=PAGE, attention=attention), ready=[])
        assert reason in str(refusal.value)
    for attention, reason in WRONG:
        with pytest.raises(InputError) as refusal:
            RuntimeProfile(attention=attention)
        assert reason in str(refusal.value)
        assert "\n" not in str(refusal.value)

    ir = build(spec, resolve(RuntimeProfile(page_size=PAGE, attention=SMALL), spec))
    with pytest.raises(ValueError, match="one sequence at a time, not 2"):
        lower(ir, Entry("decode", 2, 1024, 2))


def test_scoring_needs_single_rows(session_of):
    session = session_of("llama", SMALL)
    for rows in (2, 512):
        with pytest.raises(InputError, match=f"needs scoring rows 1, not {rows}"):
            session.score(IDS[:100], 50, rows=rows)
