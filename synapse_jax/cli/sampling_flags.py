"""Flags that say how tokens are drawn."""

from __future__ import annotations

import dataclasses
from typing import Any

from absl import flags

from synapse_jax.spec.sampling import Sampling


def define_sampling(values: flags.FlagValues) -> None:
    """Flags that become a Sampling."""
    defaults = Sampling()
    flags.DEFINE_float(
        "temperature",
        defaults.temperature,
        "Logits are divided by it; 0 takes the most likely token.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "top_k", defaults.top_k, "Keep the k most likely tokens; 0 keeps all.", flag_values=values
    )
    flags.DEFINE_float(
        "top_p",
        defaults.top_p,
        "Keep the most likely tokens that have this probability together.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "min_p",
        defaults.min_p,
        "Keep tokens with at least this share of the best one's probability.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "repetition_penalty",
        defaults.repetition_penalty,
        "Divides positive logits of tokens that occurred, multiplies negative ones; 1 changes nothing.",
        flag_values=values,
    )
    flags.DEFINE_integer("seed", defaults.seed, "Seed of the draws.", flag_values=values)


def sampling_from(values: flags.FlagValues) -> Sampling:
    """The sampling that the flags of `define_sampling` ask for."""
    given: dict[str, Any] = {field.name: values[field.name].value for field in dataclasses.fields(Sampling)}
    return Sampling(**given)
