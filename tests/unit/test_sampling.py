"""Choosing tokens: what the filters keep, and noise that belongs to seed and position alone."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.ops import sampling as ops
from synapse_jax.ops.sampling import SamplerRows, choose, gumbel_noise, penalise
from synapse_jax.runtime.session import Session
from synapse_jax.spec.sampling import GREEDY, Sampling
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sampling.json").read_text())
IDS = np.random.RandomState(5).randint(0, 288, 40)
DRAWN = Sampling(temperature=1.5, top_p=0.95, seed=7)


def golden_logits(case) -> np.ndarray:
    """The logits that tools/update_sampling_golden.py gave to llama.cpp."""
    random = np.random.RandomState(case["logits_seed"])
    return random.normal(-3, 2.5, GOLDEN["vocabulary"]).astype(np.float32)


def rows(*settings: Sampling) -> SamplerRows:
    def column(name, dtype=np.float32):
        return jnp.asarray(np.array([getattr(s, name) for s in settings], dtype))

    seeds = np.array([[s.seed >> 32, s.seed & 0xFFFFFFFF] for s in settings], np.uint32)
    return SamplerRows(
        jnp.asarray(seeds),
        column("temperature"),
        column("top_k", np.int32),
        column("top_p"),
        column("min_p"),
        column("repetition_penalty"),
    )


def filter_logits(logits, given: SamplerRows) -> np.ndarray:
    """Logits that the filters keep, −inf for the rest."""

    def threshold(logits, given):
        best_BI, _ = ops._best(logits)
        return ops.threshold(logits, best_BI, given.top_k_B, given.top_p_B, given.min_p_B)

    least_B = jax.jit(threshold)(logits, given)
    return np.where(np.asarray(logits) >= np.asarray(least_B)[:, None], np.asarray(logits), -np.inf)


def noise_of(seed, position, size) -> np.ndarray:
    noise = jax.jit(gumbel_noise)(jnp.asarray(seed, jnp.uint32), jnp.int32(position), jnp.arange(size))
    return np.asarray(noise)


@pytest.fixture(params=[1024, 20], ids=["sorted", "searched"])
def best(request, monkeypatch):
    """How many logits are sorted: with 20 most thresholds must be searched for."""
    monkeypatch.setattr(ops, "BEST", request.param)


@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda case: f"{case['logits_seed']}-{case['settings']}"
)
def test_filters_keep_what_llama_cpp_keeps(best, case):
    setting = Sampling(**case["settings"])
    given = rows(setting)
    seen = np.zeros((1, GOLDEN["vocabulary"]), bool)
    seen[0, GOLDEN["seen"]] = True
    penalised = penalise(jnp.asarray(golden_logits(case))[None], jnp.asarray(seen), given.penalty_B)
    kept = filter_logits(penalised, given)[0]
    assert np.flatnonzero(np.isfinite(kept)).tolist() == [int(token) for token in case["kept"]]
    scaled = kept.astype(np.float64) / setting.temperature
    weights = np.exp(scaled - scaled.max())
    expected = np.array(list(case["kept"].values()))
    assert np.abs(weights[weights > 0] / weights.sum() - expected).max() < 1e-6


def test_nothing_is_filtered_by_default(best):
    logits = jnp.asarray([[0.0, -200.0, 100.0, -0.0, 5.0]], jnp.float32)
    given = rows(Sampling(temperature=1.0))
    assert np.array_equal(filter_logits(logits, given), np.asarray(logits))


def test_equal_logits_are_kept_together():
    logits = jnp.asarray([[1.0, 3.0, 0.0, 3.0, -0.0, 3.0]], jnp.float32)
    for top_k, expected in ((1, [1, 3, 5]), (4, [0, 1, 3, 5]), (5, [0, 1, 2, 3, 4, 5])):
        given = rows(Sampling(temperature=1.0, top_k=top_k))
        kept = filter_logits(logits, given)
        assert np.flatnonzero(np.isfinite(kept[0])).tolist() == expected


def test_draws_follow_the_probabilities():
    logits = np.array([2.0, 1.0, 0.0, -1.0, 0.5, -5.0, 1.5], np.float32)
    draws = 100_000
    given = rows(Sampling(temperature=0.8, seed=11))
    many = SamplerRows(*(jnp.repeat(field, draws, axis=0) for field in given))
    shape = (draws, len(logits))
    chosen = jax.jit(choose)(
        jnp.broadcast_to(jnp.asarray(logits), shape), jnp.zeros(shape, bool), jnp.arange(draws), many
    )
    weights = np.exp(logits.astype(np.float64) / 0.8)
    expected = draws * weights / weights.sum()
    counts = np.bincount(np.asarray(chosen), minlength=len(logits))
    # Chi-square of 6 degrees of freedom: above 22.5 in one of a thousand seeds; the seed is fixed.
    assert ((counts - expected) ** 2 / expected).sum() < 22.5


def test_noise_is_that_of_seed_position_and_token_alone():
    noise = noise_of([0, 7], 100, 1000)
    assert np.array_equal(noise, noise_of([0, 7], 100, 1000))
    assert np.isfinite(noise).all() and len(np.unique(noise)) > 990
    assert np.abs(noise.mean() - 0.5772) < 0.1
    for seed, position in (([0, 7], 101), ([0, 8], 100), ([1, 7], 100)):
        assert (noise_of(seed, position, 1000) != noise).mean() > 0.99
    some = gumbel_noise(jnp.asarray([0, 7], jnp.uint32), jnp.int32(100), jnp.asarray([999, 3]))
    assert np.array_equal(np.asarray(some), noise[[999, 3]])


def threefry_2x32(key: list[int], counter: list[int]) -> list[int]:
    """Threefry with 20 rounds (Salmon et al. 2011, "Parallel random numbers"), in Python integers."""
    word = 0xFFFFFFFF
    schedule = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    x = [(counter[0] + schedule[0]) & word, (counter[1] + schedule[1]) & word]
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x[0] = (x[0] + x[1]) & word
            x[1] = x[0] ^ ((x[1] << turn | x[1] >> (32 - turn)) & word)
        x[0] = (x[0] + schedule[(block + 1) % 3]) & word
        x[1] = (x[1] + schedule[(block + 2) % 3] + block + 1) & word
    return x


def test_noise_is_threefrys():
    """Drawn texts are reproducible over versions of jax: the generator is a published one."""
    # The known answer of the authors' own test for zeros.
    assert threefry_2x32([0, 0], [0, 0]) == [0x6B200159, 0x99BA4EFE]
    noise = noise_of([1, 2], 3, 50)
    key = threefry_2x32([1, 2], [0, 3])
    for token in range(50):
        high, low = threefry_2x32(key, [0, token])
        uniform = (((high ^ low) >> 9) + 0.5) * 2.0**-23
        assert abs(float(noise[token]) + np.log(-np.log(uniform))) < 1e-5


def test_a_row_is_chosen_alike_beside_any_others():
    logits = np.random.RandomState(3).gumbel(0, 2, (4, 5000)).astype(np.float32)
    seen = np.random.RandomState(4).rand(4, 5000) < 0.1
    settings = [
        Sampling(temperature=0.9, seed=1, top_k=50),
        Sampling(temperature=1.2, seed=2, top_p=0.9, repetition_penalty=1.2),
        GREEDY,
        Sampling(temperature=1.0, seed=4, min_p=0.1),
    ]
    position = jnp.asarray([5, 9, 2, 700])
    together = np.asarray(jax.jit(choose)(logits, seen, position, rows(*settings)))
    for row, setting in enumerate(settings):
        here = slice(row, row + 1)
        alone = jax.jit(choose)(logits[here], seen[here], position[here], rows(setting))
        assert int(alone[0]) == together[row]
    assert together[2] == logits[2].argmax()


def test_a_draw_is_the_same_from_the_best_and_from_all(monkeypatch):
    logits = np.random.RandomState(3).normal(0, 3, (8, 500)).astype(np.float32)
    given = rows(*(Sampling(temperature=1.5, seed=seed, top_k=15, top_p=0.97) for seed in range(8)))
    seen, position = np.zeros((8, 500), bool), np.arange(8)
    chosen = []
    for size in (10, 100, 500):  # of 10 the fifteenth is not one
        monkeypatch.setattr(ops, "BEST", size)
        # Another function each time: what is compiled for one size must not serve the next.
        drawn = jax.jit(lambda *arguments: choose(*arguments))(logits, seen, position, given)
        chosen.append(np.asarray(drawn).tolist())
    assert chosen[0] == chosen[1] == chosen[2] and len(set(chosen[0])) > 5


@pytest.fixture(scope="module")
def session():
    return Session(TinyModel(Tiny(context=512)), ready=[])


def test_drawn_tokens_depend_on_the_seed_and_on_nothing_else(session):
    expected = session.generate(IDS, 40, sampling=DRAWN, stop_ids=()).token_ids
    assert session.generate(IDS, 40, sampling=DRAWN, stop_ids=()).token_ids == expected
    # In calls of other sizes, and after other work.
    shown: list[int] = []
    session.generate(IDS[:11], 3, stop_ids=())
    streamed = session.generate(IDS, 40, sampling=DRAWN, stop_ids=(), on_tokens=shown.extend)
    assert streamed.token_ids == tuple(shown) == expected
    # As the continuation of its own first half: the noise belongs to the position.
    half = np.concatenate([IDS, expected[:20]])
    assert session.generate(half, 20, sampling=DRAWN, stop_ids=()).token_ids == expected[20:]
    other = Sampling(temperature=1.5, top_p=0.95, seed=8)
    assert session.generate(IDS, 40, sampling=other, stop_ids=()).token_ids != expected


def test_one_token_kept_is_the_greedy_one(session):
    greedy = session.generate(IDS, 20, stop_ids=()).token_ids
    drawn = session.generate(IDS, 20, sampling=Sampling(temperature=1.0, top_k=1), stop_ids=()).token_ids
    assert drawn == greedy


def test_a_strong_penalty_forbids_repetition(session):
    penalised = Sampling(repetition_penalty=100.0)
    ids = IDS[:5]
    new = session.generate(ids, 40, sampling=penalised, stop_ids=()).token_ids
    repeated = session.generate(ids, 40, stop_ids=()).token_ids
    assert len(set(new)) > len(set(repeated))
    # Where a token that is not penalised has a positive logit, no seen one can win: 40 of 288 tokens.
    assert len(set(new)) == 40 and not set(new) & set(ids.tolist())


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN, Sampling(repetition_penalty=1.2)], ids=str)
def test_logprobs_are_the_models_own(session, sampling):
    generation = session.generate(IDS, 20, sampling=sampling, logprobs=True, stop_ids=())
    assert generation.token_ids == session.generate(IDS, 20, sampling=sampling, stop_ids=()).token_ids
    scores = session.score(np.concatenate([IDS, generation.token_ids]), len(IDS))
    assert generation.logprobs is not None
    assert np.abs(np.array(generation.logprobs) + scores.nll).max() < 1e-4
    assert session.generate(IDS, 3, sampling=sampling).logprobs is None


def test_a_stop_token_ends_a_drawn_text(session):
    new = session.generate(IDS, 40, sampling=DRAWN, stop_ids=()).token_ids
    at = next(index for index in range(3, 40) if new[index] not in new[:index])
    shown: list[int] = []
    given = {"sampling": DRAWN, "stop_ids": [new[at]], "logprobs": True}
    generation = session.generate(IDS, 40, **given)
    assert (generation.token_ids, generation.finish_reason) == (new[:at], "stop")
    assert len(generation.logprobs) == at
    assert session.generate(IDS, 40, **given, on_tokens=shown.extend).token_ids == tuple(shown) == new[:at]


def test_streamed_greedy_tokens_are_the_same(session):
    shown: list[list[int]] = []
    expected = session.generate(IDS, 33, stop_ids=()).token_ids
    session.generate(IDS, 33, stop_ids=(), on_tokens=shown.append)
    assert tuple(token for tokens in shown for token in tokens) == expected
    assert len(shown[0]) == 1 and session.generate(IDS, 0, on_tokens=shown.append).token_ids == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature -1 is negative"),
        ({"temperature": 1e-9}, "below 0.001"),
        ({"temperature": float("nan")}, "not a finite number"),
        ({"temperature": "1"}, "not a finite number"),
        ({"temperature": 1, "top_k": -1}, "top_k -1"),
        ({"temperature": 1, "top_k": 1.5}, "top_k 1.5 is not an integer"),
        ({"temperature": 1, "top_p": 0}, "top_p 0 "),
        ({"temperature": 1, "top_p": 1.1}, "top_p 1.1"),
        ({"temperature": 1, "min_p": 2}, "min_p 2"),
        ({"repetition_penalty": 0}, "repetition_penalty 0"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**64}, "seed"),
        ({"top_k": 5}, "top_k 5 has no effect at temperature 0"),
        ({"top_p": 0.5}, "top_p 0.5 has no effect"),
        ({"min_p": 0.5}, "min_p 0.5 has no effect"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(InputError, match=message):
        Sampling(**settings)
