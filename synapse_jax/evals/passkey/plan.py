"""Which prompts a pass-key run has."""

from __future__ import annotations

import dataclasses
import itertools

from synapse_jax.errors import InputError
from synapse_jax.evals.passkey.fixture import Fixture, PasskeyPrompt


@dataclasses.dataclass(frozen=True)
class PasskeyPlan:
    """What is asked for, but for the vocabulary."""

    lengths: tuple[int, ...]
    """Most tokens of prompt and answer together."""
    depths: tuple[float, ...]
    """Where the key is, 0 … 1."""
    answer_tokens: int = 16
    """Greedy tokens that may answer; llama.cpp's own number."""
    seed: int = 0
    """Of the keys."""

    def __post_init__(self):
        if self.answer_tokens < 1:
            raise InputError(f"{self.answer_tokens} new tokens hold no answer")
        if self.seed < 0:
            raise InputError(f"seed {self.seed} is below 0")
        for length in self.lengths:
            if length < 1:
                raise InputError(f"length {length} is below 1")
        for depth in self.depths:
            if not 0 <= depth <= 1:
                raise InputError(f"depth {depth:g} is not between 0 and 1")
        for name, values in (("lengths", self.lengths), ("depths", self.depths)):
            if len(set(values)) < len(values):
                raise InputError(f"{name} {', '.join(map(str, values))}: one is there twice")

    def prompts(self, fixture: Fixture, context: int) -> list[PasskeyPrompt]:
        """Every prompt, in the order in which they run.

        Raises:
            InputError: a length that is above the context, or too short for a prompt.
        """
        for length in self.lengths:
            if length > context:
                raise InputError(f"length {length} is above the context of {context} positions")
        return [
            fixture.prompt(length, depth, self.answer_tokens, self.seed)
            for length, depth in itertools.product(self.lengths, self.depths)
        ]
