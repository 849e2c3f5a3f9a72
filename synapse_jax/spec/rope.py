"""The rotary profile of a model: how positions become angles, and for how many positions that is good."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from synapse_jax.errors import InputError
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope_scaling import RopeScaling, yarn_magnitude


@dataclasses.dataclass(frozen=True)
class RopeProfile:
    """Everything that decides the rotary table, resolved: nothing in it has a default that could differ."""

    type: str
    """Kind of scaling: none, linear, yarn, llama3 or longrope."""
    base: float
    """θ base of the frequencies."""
    rotary_size: int
    """d = 2R, leading dimensions of a head that are rotated."""
    factor: float
    """f, by which the window is extended; 1.0 for `none`."""
    original: int
    """Positions that the unscaled frequencies were trained for."""
    trained_context: int
    """Positions that the file declares as trained."""
    magnitude: float = 1.0
    """m: cos and sin are multiplied by it, so q·k is by m²."""
    beta_fast: float = 32.0
    """YaRN; see `RopeScaling`."""
    beta_slow: float = 1.0
    """YaRN; see `RopeScaling`."""
    ext_factor: float = 1.0
    """YaRN; see `RopeScaling`."""
    truncate: bool = True
    """YaRN; see `RopeScaling`."""
    divisors: tuple[float, ...] = ()
    """llama3 and longrope: what each frequency is divided by, R values; empty for other types."""

    def __post_init__(self):
        if self.rotary_size < 2 or self.rotary_size % 2:
            raise InputError(f"RoPE rotary size {self.rotary_size} is not a positive even number")
        if not (self.original > 0 and self.trained_context > 0 and 0 < self.base < float("inf")):
            raise InputError(
                f"RoPE base {self.base}, original {self.original} and trained context {self.trained_context} "
                "must be positive"
            )
        if self.type == "yarn" and self.base <= 1:
            raise InputError(f"RoPE base {self.base} is not above 1, which YaRN needs")
        if (self.type in ("llama3", "longrope")) != bool(self.divisors):
            raise InputError(f"RoPE scaling {self.type} with {len(self.divisors)} divisors")
        pairs = self.rotary_size // 2
        if self.divisors and len(self.divisors) != pairs:
            raise InputError(
                f"RoPE scaling {self.type}: {len(self.divisors)} divisors for {pairs} frequencies"
            )

    @property
    def context_limit(self) -> int:
        """Most positions that a context may have under this profile."""
        if self.type == "yarn":
            return extended(self.factor, self.original)
        if self.type == "linear":
            return extended(self.factor, self.trained_context)
        return self.trained_context

    def summary(self) -> dict:
        """The part of a record that describes the profile."""
        shown = {
            "type": self.type,
            "factor": self.factor,
            "original": self.original,
            "trained_context": self.trained_context,
            "context_limit": self.context_limit,
            "base": self.base,
            "magnitude": self.magnitude,
        }
        if self.type == "yarn":
            names = ("beta_fast", "beta_slow", "ext_factor", "truncate")
            shown |= {name: getattr(self, name) for name in names}
        if self.divisors:
            shown["divisors"] = list(self.divisors)
        return shown


def extended(factor: float, positions: int) -> int:
    """floor(factor · positions), of the number that the factor is written as."""
    return math.floor(Fraction(repr(factor)) * positions)


def unscaled_profile(spec: ModelSpec) -> RopeProfile:
    """The profile `none` of a model: its own frequencies, its own window."""
    return _unscaled(spec, spec.rope_base)


def local_profile(spec: ModelSpec) -> RopeProfile:
    """The profile of sliding-window layers: unscaled, with their own base where the model has one."""
    return _unscaled(spec, spec.rope_base if spec.local_rope_base is None else spec.local_rope_base)


def rope_profile(spec: ModelSpec, asked: RopeScaling | None, context: int | None) -> RopeProfile:
    """The profile that a model runs under: the file's own, or an explicit one that does not contradict it.

    Args:
        spec: the model, with what its file declares.
        asked: an explicit scaling, or None.
        context: the context asked for; longrope chooses its divisors by it. None means the whole window.

    Raises:
        InputError: a file whose numbers do not fit together, an explicit scaling that contradicts the file's
            or begins above its trained window.
    """
    declared = _resolve(spec, spec.rope_scaling, context)
    if spec.rope_scaling.type == "yarn":
        window, limit = spec.trained_context, declared.context_limit
        if window not in (declared.original, limit):
            raise InputError(
                f"the file declares RoPE scaling {spec.rope_scaling}: its context length {window} is neither "
                f"the original {declared.original} nor {limit}, the factor times that"
            )
    if asked is None:
        return declared
    if asked.original is not None and asked.original > spec.trained_context:
        raise InputError(
            f"RoPE scaling {asked}: the original length {asked.original} is above the {spec.trained_context} "
            "positions that the model was trained for"
        )
    profile = _resolve(spec, asked, context)
    if spec.rope_scaling.type != "none" and profile != declared:
        raise InputError(
            f"RoPE scaling {asked} contradicts the file, which declares {spec.rope_scaling} "
            f"(original {declared.original}, window {declared.context_limit})"
        )
    return profile


def _resolve(spec: ModelSpec, scaling: RopeScaling, context: int | None) -> RopeProfile:
    if scaling.type == "none":
        return unscaled_profile(spec)
    original = spec.trained_context if scaling.original is None else scaling.original
    divisors = scaling.divisors
    if scaling.type == "longrope":
        if original < 2:
            raise InputError(f"RoPE scaling longrope: the original length {original} is below 2")
        is_long = (spec.trained_context if context is None else context) > original
        divisors = scaling.long_divisors if is_long else scaling.short_divisors
    yarn = {name: getattr(scaling, name) for name in ("beta_fast", "beta_slow", "ext_factor", "truncate")}
    return RopeProfile(
        type=scaling.type,
        base=spec.rope_base,
        rotary_size=spec.rotary_size,
        factor=float(scaling.factor),
        original=original,
        trained_context=spec.trained_context,
        magnitude=_magnitude(spec, scaling, original),
        divisors=divisors,
        **(yarn if scaling.type == "yarn" else {}),
    )


def _magnitude(spec: ModelSpec, scaling: RopeScaling, original: int) -> float:
    """m of a declaration; the types' own formulas are those of YaRN (eq. 22) and LongRoPE (§4.2)."""
    if scaling.magnitude is not None:
        return scaling.magnitude
    own = 1.0
    if scaling.type == "yarn" and scaling.ext_factor:
        own = yarn_magnitude(scaling.factor)
        if scaling.log_multiplier:
            own /= yarn_magnitude(scaling.factor, scaling.log_multiplier)
    elif scaling.type == "longrope":
        stretch = spec.trained_context / original
        own = 1.0 if stretch <= 1 else math.sqrt(1 + math.log(stretch) / math.log(original))
    return own * scaling.attn_factor


def _unscaled(spec: ModelSpec, base: float) -> RopeProfile:
    return RopeProfile(
        type="none",
        base=base,
        rotary_size=spec.rotary_size,
        factor=1.0,
        original=spec.trained_context,
        trained_context=spec.trained_context,
    )
