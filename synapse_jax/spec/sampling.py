"""How the next token is chosen, as frozen data."""

from __future__ import annotations

import dataclasses
import math

from synapse_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The choice of tokens. The defaults are greedy.

    The filters apply in this order, llama.cpp's: repetition penalty, top-k, top-p, min-p, then
    temperature. So top-p and min-p look at the probabilities before temperature flattens them.
    """

    temperature: float = 0.0
    """Logits are divided by it; 0 takes the most likely token."""
    top_k: int = 0
    """Only tokens at least as likely as the k-th are kept; 0 keeps all."""
    top_p: float = 1.0
    """Only the most likely tokens are kept, as few as have this probability together; 1 keeps all."""
    min_p: float = 0.0
    """Only tokens with at least this share of the best token's probability are kept."""
    repetition_penalty: float = 1.0
    """Logits of tokens that the prompt or the continuation holds are divided by it where positive, else
    multiplied (Keskar et al. 2019, as transformers and llama.cpp do); 1 changes nothing."""
    seed: int = 0
    """Of the noise. The noise of a token depends on it and on the token's position alone."""

    def __post_init__(self):
        for field in ("top_k", "seed"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"{field} {value!r} is not an integer")
        for field in ("temperature", "top_p", "min_p", "repetition_penalty"):
            value = getattr(self, field)
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                raise InputError(f"{field} {value!r} is not a finite number")
        if self.temperature < 0:
            raise InputError(f"temperature {self.temperature} is negative")
        if 0 < self.temperature < 1e-3:
            # Logits divided by less overflow float32; nobody means it.
            raise InputError(f"temperature {self.temperature} is below 0.001 and not 0")
        if not 0 <= self.top_k < 2**31:
            raise InputError(f"top_k {self.top_k} is not from 0 to 2147483647")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p {self.top_p} is not above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise InputError(f"min_p {self.min_p} is not from 0 to 1")
        if not 0.01 <= self.repetition_penalty <= 100:
            raise InputError(f"repetition_penalty {self.repetition_penalty} is not from 0.01 to 100")
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed {self.seed} is not from 0 to 2^64 − 1")
        if self.temperature == 0:
            for field in ("top_k", "top_p", "min_p"):
                if getattr(self, field) != getattr(Sampling, field):
                    raise InputError(f"{field} {getattr(self, field)} has no effect at temperature 0")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken, without a penalty."""
        return self.temperature == 0 and self.repetition_penalty == 1


GREEDY = Sampling()
"""Always the most likely token."""
