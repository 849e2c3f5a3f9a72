"""How a decoder is trained: every choice that decides its weights beside its shape and its corpus."""

from __future__ import annotations

import dataclasses
import math

from synapse_jax.errors import InputError
from synapse_jax.spec.digest import canonical_json, sha256_text
from synapse_jax.train.first_weights import KINDS

OPTIMIZERS = ("adamw", "muon")
SCHEDULES = ("cosine", "trapezoid")


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """A training run. Equal plans of equal shapes on equal corpora give equal weights on one machine.

    Raises:
        InputError: a field that cannot be used; the message names it and its value.
    """

    tokens: int
    """Targets to learn from. The last step is a whole one, so up to `rows` · `length` − 1 more are used."""
    rows: int = 8
    """Windows a step."""
    length: int = 512
    """S, positions of a window."""
    optimizer: str = "muon"
    """`adamw`, or `muon`: orthogonalized momentum for the matrices of the layers, AdamW for all else."""
    peak_rate: float = 4e-3
    """Learning rate after the warmup. Muon's updates are scaled to the size of AdamW's, so it is for both."""
    warmup_share: float = 0.04
    """Share of the steps in which the rate rises linearly from 0."""
    schedule: str = "trapezoid"
    """How it falls after that: `cosine`, half a wave over all steps that are left; or `trapezoid`, which
    stays at the peak and falls linearly in the end."""
    decay_share: float = 0.4
    """Share of the steps in which a trapezoid falls."""
    final_share: float = 0.0
    """Share of the peak rate that is reached in the end."""
    weight_decay: float = 0.1
    """Of matrices, times the learning rate; norms do not decay."""
    clip: float = 1.0
    """Largest norm of all gradients together; a larger one is scaled down to it."""
    embedding_rate: float = 1.0
    """Times the learning rate: the rate of the embedding, which is the head too where they are tied."""
    first_weights: str = "gpt2"
    """What the run begins with: `gpt2`, or `copying`, which can copy already (`train.first_weights`)."""
    seed: int = 0
    """Of the first weights, of the windows and of the repeated spans."""
    repeat_share: float = 0.0
    """Share of the windows that carry a span of random tokens more than once."""
    repeat_length: int = 32
    """Tokens of that span."""
    repeat_copies: int = 2
    """Most copies of it in a window; each such window draws a number from 2 up to this."""

    def __post_init__(self):
        for field, least in (
            ("tokens", 1),
            ("rows", 1),
            ("length", 2),
            ("seed", 0),
            ("repeat_length", 2),
            ("repeat_copies", 2),
        ):
            self._check_integer(field, least)
        if self.seed >= 2**32:
            raise InputError(f"training: seed {self.seed} is not below 2^32")
        for field, choices in (
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("first_weights", KINDS),
        ):
            if getattr(self, field) not in choices:
                raise InputError(
                    f"training: {field} {getattr(self, field)!r} is not one of {', '.join(choices)}"
                )
        for field in ("warmup_share", "decay_share", "final_share", "repeat_share"):
            self._check_number(field, 0, 1)
        for field in ("peak_rate", "clip", "embedding_rate"):
            self._check_number(field, 0, math.inf)
            if getattr(self, field) == 0:
                raise InputError(f"training: {field} is 0: nothing would be learned")
        self._check_number("weight_decay", 0, math.inf)
        if self.schedule == "trapezoid" and self.warmup_share + self.decay_share > 1:
            raise InputError(
                f"training: warmup_share {self.warmup_share} and decay_share {self.decay_share} are more "
                "than all steps"
            )
        if self.repeat_share and self.repeat_copies * self.repeat_length > self.length + 1:
            raise InputError(
                f"training: repeat_length {self.repeat_length} does not fit {self.repeat_copies} times in a "
                f"window of {self.length + 1} tokens"
            )

    def _check_integer(self, field: str, least: int) -> None:
        value = getattr(self, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError(f"training: {field} {value!r} is not an integer from {least} up")

    def _check_number(self, field: str, least: float, most: float) -> None:
        value = getattr(self, field)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not least <= value <= most:
            raise InputError(f"training: {field} {value!r} is not a number from {least:g} to {most:g}")

    @property
    def step_tokens(self) -> int:
        """Targets a step."""
        return self.rows * self.length

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return -(-self.tokens // self.step_tokens)

    @property
    def digest(self) -> str:
        """SHA-256 of all fields, hex."""
        return sha256_text(canonical_json(self))

    @property
    def rule(self) -> TrainingPlan:
        """The plan without what decides first weights and windows only: plans of one rule share a program."""
        return dataclasses.replace(self, seed=0, repeat_share=0.0, repeat_length=2, first_weights="gpt2")

    def rate(self, step: int) -> float:
        """The learning rate of a step, 0 … `steps` − 1.

        The first step already learns and the last one still does: step s is taken at the middle of its place.
        """
        done = (step + 0.5) / self.steps
        if done < self.warmup_share:
            return self.peak_rate * done / self.warmup_share
        if self.schedule == "cosine":
            along = (done - self.warmup_share) / (1 - self.warmup_share)
            left = 0.5 * (1 + math.cos(math.pi * along))
        else:
            left = 1.0 if done <= 1 - self.decay_share else (1 - done) / self.decay_share
        return self.peak_rate * (self.final_share + (1 - self.final_share) * left)
