"""RoPE scaling of TINY models: one declaration, and what files and a float64 evaluation make of it.

Written from the papers and from transformers' `modeling_rope_utils.py`, not from the engine's own code.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class TinyRope:
    """A scaling in the words of a Hugging Face config, with what only GGUF can say below them."""

    type: str
    """linear, yarn, llama3 or longrope."""
    factor: float = 1.0
    original: int | None = None
    """Positions of the original window; None for linear, which has none."""
    attention_factor: float | None = None
    """The magnitude m itself."""
    mscale: float | None = None
    mscale_all_dim: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    low: float = 1.0
    """llama3: `low_freq_factor`."""
    high: float = 4.0
    """llama3: `high_freq_factor`."""
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    ext_factor: float = 1.0
    """yarn, GGUF only."""
    log_multiplier: float = 0.0
    """yarn, GGUF only: `yarn_log_multiplier`."""

    def magnitude(self, context: int) -> float:
        """m, which multiplies cos and sin; `context` is what the model was trained for."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.type == "longrope":
            assert self.original
            return math.sqrt(1 + math.log(context / self.original) / math.log(self.original))
        if self.type != "yarn" or not self.ext_factor:
            return 1.0
        if self.mscale and self.mscale_all_dim:
            return self._scale(self.mscale) / self._scale(self.mscale_all_dim)
        return self._scale(1.0) / (self._scale(self.log_multiplier) if self.log_multiplier else 1.0)

    def _scale(self, multiplier: float) -> float:
        return 1.0 + 0.1 * multiplier * math.log(self.factor)

    def frequencies(self, base: float, size: int, positions: int) -> np.ndarray:
        """θ' in float64 [size / 2]; `positions` is the length of the sequence, by which longrope chooses."""
        theta = base ** (-np.arange(0, size, 2) / size)
        if self.type == "linear":
            return theta / self.factor
        if self.type == "llama3":
            return theta / self.divisors(base, size)
        assert self.original
        if self.type == "longrope":
            return theta / np.array(self.long if positions > self.original else self.short)
        # The dimension that turns so many times over the original window (YaRN, eq. 17).
        low, high = (
            size * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(base))
            for turns in (self.beta_fast, self.beta_slow)
        )
        low, high = max(math.floor(low), 0), min(math.ceil(high), size - 1)
        interpolated = np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
        kept = self.ext_factor * (1 - interpolated)
        return theta / self.factor * (1 - kept) + theta * kept

    def divisors(self, base: float, size: int) -> np.ndarray:
        """llama3: what θ is divided by, float64 [size / 2] (`_compute_llama3_parameters`)."""
        assert self.original
        theta = base ** (-np.arange(0, size, 2) / size)
        turns = self.original * theta / (2 * math.pi)
        smooth = (turns - self.low) / (self.high - self.low)
        mixed = theta / ((1 - smooth) * theta / self.factor + smooth * theta)
        return np.where(turns < self.low, self.factor, np.where(turns > self.high, 1.0, mixed))

    def metadata(self, arch: str, context: int) -> dict[str, Any]:
        """Keys of a GGUF file; `context` is its context length."""
        keys: dict[str, Any] = {}
        if self.original and self.type != "llama3":
            keys["original_context_length"] = self.original
        if self.type in ("linear", "yarn"):
            keys |= {"type": self.type, "factor": float(self.factor)}
        if self.type == "longrope":
            # As converters write it: phi3 has no type, and the magnitude is always there.
            keys |= {} if arch == "phi3" else {"type": "longrope"}
            keys["attn_factor"] = self.magnitude(context)
        if self.type == "yarn":
            own = dataclasses.replace(self, attention_factor=None, mscale=None).magnitude(context)
            if own != self.magnitude(context):
                keys["attn_factor"] = self.magnitude(context) / own
            for name in ("beta_fast", "beta_slow", "ext_factor", "log_multiplier"):
                if getattr(self, name) != getattr(TinyRope, name):
                    keys[f"yarn_{name}"] = float(getattr(self, name))
        return {f"{arch}.rope.scaling.{key}": value for key, value in keys.items()}

    def tensors(self, base: float, size: int) -> dict[str, np.ndarray]:
        """Tensors of a GGUF file."""
        if self.type == "llama3":
            return {"rope_freqs.weight": self.divisors(base, size).astype(np.float32)}
        if self.type != "longrope":
            return {}
        return {
            "rope_factors_long.weight": np.array(self.long, np.float32),
            "rope_factors_short.weight": np.array(self.short, np.float32),
        }

    def parameters(self) -> dict[str, Any]:
        """`rope_parameters` of a Hugging Face config, without the base."""
        given: dict[str, Any] = {"rope_type": self.type}
        if self.type != "longrope":
            given["factor"] = float(self.factor)
        if self.type != "linear":
            given["original_max_position_embeddings"] = self.original
        if self.type == "llama3":
            given |= {"low_freq_factor": self.low, "high_freq_factor": self.high}
        if self.type == "longrope":
            given |= {"short_factor": list(self.short), "long_factor": list(self.long)}
        if self.type == "yarn":
            given |= {"beta_fast": self.beta_fast, "beta_slow": self.beta_slow}
        for name in ("attention_factor", "mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        return given
