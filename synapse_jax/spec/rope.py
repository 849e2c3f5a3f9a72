"""The rotary profile of a model and its host-computed tables."""

from __future__ import annotations

import dataclasses

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.spec.model import ModelSpec


@dataclasses.dataclass(frozen=True)
class RopeProfile:
    """How positions become rotation angles, and how many positions that is good for."""

    type: str
    """Kind of scaling; `none` is the unscaled profile, the only one so far."""
    base: float
    """θ base of the frequencies."""
    rotary_size: int
    """d, leading dimensions of a head that are rotated."""
    factor: float
    """Factor by which the window is extended; 1.0 for `none`."""
    original: int
    """Positions that the unscaled frequencies were trained for."""
    trained_context: int
    """Positions that the file declares as trained."""

    def __post_init__(self):
        if self.type != "none" or self.factor != 1:
            raise InputError(
                f"RoPE scaling {self.type} with factor {self.factor} is not supported yet; none is"
            )
        if self.rotary_size < 2 or self.rotary_size % 2:
            raise InputError(f"RoPE rotary size {self.rotary_size} is not a positive even number")
        if not (self.original > 0 and self.trained_context > 0 and 0 < self.base < float("inf")):
            raise InputError(
                f"RoPE base {self.base}, original {self.original} and trained context {self.trained_context} "
                "must be positive"
            )

    @property
    def context_limit(self) -> int:
        """Most positions that a context may have under this profile."""
        return self.trained_context

    def summary(self) -> dict:
        """The part of a record that describes the profile."""
        return {
            "type": self.type,
            "factor": self.factor,
            "original": self.original,
            "trained_context": self.trained_context,
            "context_limit": self.context_limit,
        }


def unscaled_profile(spec: ModelSpec) -> RopeProfile:
    """The profile `none` of a model: its own frequencies, its own window."""
    return RopeProfile(
        type="none",
        base=spec.rope_base,
        rotary_size=spec.rotary_size,
        factor=1.0,
        original=spec.trained_context,
        trained_context=spec.trained_context,
    )


def rope_rows(profile: RopeProfile, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the rotation angles at some positions.

    cos(p · base^(−2i/d)) and the same with sin, for i = 0 … d/2 − 1 (Su et al., arXiv 2104.09864, §3.4.2),
    evaluated in float64 and rounded once to float32. A row depends on its position alone.

    Args:
        profile: the rotary profile.
        positions: int array [T], each in 0 … context_limit − 1.

    Returns:
        cos [T, R] and sin [T, R], float32, R = d/2.

    Raises:
        IndexError: a position lies outside the profile's window.
    """
    positions = np.asarray(positions)
    if positions.size and not 0 <= positions.min() <= positions.max() < profile.context_limit:
        raise IndexError(
            f"positions {positions.min()} … {positions.max()} lie outside the RoPE table of "
            f"{profile.context_limit} positions"
        )
    # One power at a time: numpy's vectorised power may differ from it in the last bit on some processors.
    d = profile.rotary_size
    theta_R = np.array([profile.base ** (-2 * i / d) for i in range(d // 2)])
    angle_TR = positions.astype(np.float64)[:, None] * theta_R
    return np.cos(angle_TR).astype(np.float32), np.sin(angle_TR).astype(np.float32)
