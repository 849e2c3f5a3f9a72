"""Plans of a training: what is refused, and the learning rate."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.train.plan import SCHEDULES, TrainingPlan
from synapse_jax.train.watch import Watch

PLAN = TrainingPlan(tokens=10_000, rows=2, length=64)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tokens": 0}, "tokens 0"),
        ({"rows": 1.5}, "rows 1.5"),
        ({"length": 1}, "length 1"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**32}, "seed 4294967296"),
        ({"seed": True}, "seed True"),
        ({"optimizer": "sgd"}, "optimizer 'sgd'"),
        ({"schedule": "linear"}, "schedule 'linear'"),
        ({"peak_rate": 0.0}, "peak_rate is 0"),
        ({"peak_rate": float("nan")}, "peak_rate nan"),
        ({"embedding_rate": 0}, "embedding_rate is 0"),
        ({"first_weights": "zero"}, "first_weights 'zero' is not one of gpt2, copying"),
        ({"clip": -1.0}, "clip -1.0"),
        ({"clip": 0}, "clip is 0"),
        ({"weight_decay": -0.1}, "weight_decay -0.1"),
        ({"repeat_share": 1.1}, "repeat_share 1.1"),
        ({"final_share": "0"}, "final_share '0'"),
        ({"warmup_share": 0.7}, "warmup_share 0.7 and decay_share 0.4"),
        (
            {"repeat_share": 0.1, "repeat_length": 33},
            "repeat_length 33 does not fit 2 times in a window of 65",
        ),
        ({"repeat_share": 0.1, "repeat_length": 17, "repeat_copies": 4}, "17 does not fit 4 times"),
        ({"repeat_copies": 1}, "repeat_copies 1"),
    ],
)
def test_what_cannot_be_used_is_refused(fields, named):
    with pytest.raises(InputError, match=named):
        dataclasses.replace(PLAN, **fields)


def test_a_span_that_just_fits_and_one_that_is_not_asked_for_are_accepted():
    assert dataclasses.replace(PLAN, repeat_share=0.1, repeat_length=32)
    assert dataclasses.replace(PLAN, repeat_length=1000)


@pytest.mark.parametrize("field", ["looks", "look_windows", "final_windows"])
def test_a_watch_looks_at_least_once(field):
    with pytest.raises(InputError, match=f"{field} 0"):
        Watch(**{field: 0})


def test_every_field_is_in_the_digest():
    other = TrainingPlan(
        **{"tokens": 9999, "rows": 3, "length": 65, "optimizer": "adamw", "peak_rate": 1e-3},
        **{"warmup_share": 0.1, "schedule": "cosine", "decay_share": 0.3, "final_share": 0.1},
        **{
            "weight_decay": 0.0,
            "clip": 2.0,
            "seed": 1,
            "repeat_share": 0.1,
            "repeat_length": 21,
            "repeat_copies": 3,
            "embedding_rate": 0.5,
            "first_weights": "copying",
        },
    )
    digests = {PLAN.digest}
    for field in dataclasses.fields(TrainingPlan):
        assert getattr(other, field.name) != getattr(PLAN, field.name)
        digests.add(dataclasses.replace(PLAN, **{field.name: getattr(other, field.name)}).digest)
    assert len(digests) == 1 + len(dataclasses.fields(TrainingPlan))


@given(tokens=st.integers(1, 10**6), rows=st.integers(1, 9), length=st.integers(2, 99))
def test_the_last_step_is_the_first_that_reaches_all_tokens(tokens, rows, length):
    plan = TrainingPlan(tokens=tokens, rows=rows, length=length)
    assert (plan.steps - 1) * rows * length < tokens <= plan.steps * rows * length


@given(
    steps=st.integers(1, 400),
    schedule=st.sampled_from(SCHEDULES),
    warmup=st.floats(0, 0.5),
    decay=st.floats(0, 0.5),
    final=st.floats(0, 1),
)
def test_the_rate_rises_to_the_peak_and_falls_to_its_final_share(steps, schedule, warmup, decay, final):
    plan = TrainingPlan(
        **{"tokens": steps * 4, "rows": 2, "length": 2, "schedule": schedule},
        **{"warmup_share": warmup, "decay_share": decay, "final_share": final, "peak_rate": 1.0},
    )
    rates = [plan.rate(step) for step in range(steps)]
    assert all(0 <= rate <= 1 for rate in rates)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert all(a >= b - 1e-12 for a, b in zip(rates[top:], rates[top + 1 :], strict=False))
    assert rates[-1] >= final * (rates[-1] > 0) - 1e-12 or steps * warmup > steps - 0.5


def test_rates_at_known_places():
    cosine = TrainingPlan(
        tokens=400, rows=2, length=2, schedule="cosine", warmup_share=0.1, final_share=0.2, peak_rate=2.0
    )
    assert cosine.rate(0) == pytest.approx(2.0 * 0.5 / 10)
    assert cosine.rate(9) == pytest.approx(2.0 * 9.5 / 10)
    middle = (cosine.rate(54) + cosine.rate(55)) / 2  # halfway down: 0.2 + 0.8 / 2
    assert middle == pytest.approx(2.0 * 0.6, rel=1e-3)
    assert cosine.rate(99) == pytest.approx(2.0 * 0.2, rel=1e-2)
    trapezoid = dataclasses.replace(cosine, schedule="trapezoid", decay_share=0.5)
    assert {trapezoid.rate(step) for step in range(10, 50)} == {2.0}
    assert trapezoid.rate(74) == pytest.approx(2.0 * (0.2 + 0.8 * 0.51))
