"""What a file or an option says about RoPE scaling, before anything is computed from it."""

from __future__ import annotations

import dataclasses
import math

from synapse_jax.errors import InputError

SCALING_TYPES = ("none", "linear", "yarn", "llama3", "longrope")
"""Kinds of RoPE scaling."""


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """A declaration of RoPE scaling; `spec.rope.rope_profile` turns it into a profile."""

    type: str = "none"
    """One of SCALING_TYPES."""
    factor: float = 1.0
    """f, by which the window is extended."""
    original: int | None = None
    """Positions that the frequencies were trained for; None means the model's trained window."""
    beta_fast: float = 32.0
    """YaRN: rotations over the original window above which a dimension keeps its frequency."""
    beta_slow: float = 1.0
    """YaRN: rotations below which a dimension is interpolated in full."""
    ext_factor: float = 1.0
    """YaRN: share of the mix between interpolated and kept frequencies."""
    truncate: bool = True
    """YaRN: whether the bounds between the two are rounded outward to whole dimensions."""
    attn_factor: float = 1.0
    """Multiplies the magnitude of cos and sin that the type has by itself."""
    log_multiplier: float = 0.0
    """YaRN: the magnitude is divided by 1 + 0.1 · this · ln f; 0 means that it is not given."""
    magnitude: float | None = None
    """The magnitude itself (`attention_factor` of Hugging Face), in place of all that would give one."""
    divisors: tuple[float, ...] = ()
    """llama3: what each frequency is divided by, R values."""
    short_divisors: tuple[float, ...] = ()
    """longrope: the same, for contexts up to the original window."""
    long_divisors: tuple[float, ...] = ()
    """longrope: the same, for longer contexts."""

    def __post_init__(self):
        if self.type not in SCALING_TYPES:
            raise InputError(f"RoPE scaling type {self.type!r} is not one of {', '.join(SCALING_TYPES)}")
        for field in ("factor", "beta_fast", "beta_slow", "ext_factor", "attn_factor", "log_multiplier"):
            value = getattr(self, field)
            if not math.isfinite(value):
                raise InputError(f"RoPE scaling {field} {value} is not finite")
        if self.factor < 1:
            raise InputError(f"RoPE scaling factor {self.factor} is below 1")
        if self.type == "none" and self.factor != 1:
            raise InputError(f"RoPE scaling none has no factor, {self.factor} is given")
        if self.original is not None and self.original < 1:
            raise InputError(f"RoPE scaling original length {self.original} is below 1")
        if not self.beta_fast > self.beta_slow > 0:
            raise InputError(
                f"RoPE scaling beta_fast {self.beta_fast} is not above beta_slow {self.beta_slow}, "
                "or that is not above 0"
            )
        if not 0 <= self.ext_factor <= 1:
            raise InputError(f"RoPE scaling ext_factor {self.ext_factor} is not from 0 to 1")
        if self.attn_factor <= 0 or self.log_multiplier < 0:
            raise InputError(
                f"RoPE scaling attn_factor {self.attn_factor} must be above 0 and "
                f"log_multiplier {self.log_multiplier} not below"
            )
        if self.magnitude is not None and not 0 < self.magnitude < math.inf:
            raise InputError(f"RoPE scaling magnitude {self.magnitude} is not a positive number")
        for field in ("divisors", "short_divisors", "long_divisors"):
            if not all(0 < value < math.inf for value in getattr(self, field)):
                raise InputError(f"RoPE scaling {field} are not all positive numbers")
        if (self.type == "llama3") != bool(self.divisors):
            raise InputError("RoPE scaling llama3 needs a divisor for each frequency; no other type has them")
        if (self.type == "longrope") != (bool(self.short_divisors) and bool(self.long_divisors)):
            raise InputError("RoPE scaling longrope needs short and long divisors; no other type has them")

    def __str__(self) -> str:
        """As `--rope-scaling` takes it, where it can."""
        if self.type == "none":
            return "none"
        parts = [self.type, f"{self.factor:g}"]
        if self.type == "yarn" and self.original is not None:
            parts.append(str(self.original))
        for field in _NUMBERS:
            if getattr(self, field) != getattr(RopeScaling, field):
                parts.append(f"{field}={getattr(self, field):g}")
        if not self.truncate:
            parts.append("truncate=false")
        return ":".join(parts)


_NUMBERS = ("beta_fast", "beta_slow", "ext_factor", "attn_factor", "log_multiplier", "magnitude")


def yarn_magnitude(factor: float, multiplier: float = 1.0) -> float:
    """YaRN's 1 + 0.1 · multiplier · ln f, and 1 for f ≤ 1 (Peng et al., arXiv 2309.00071, eq. 22)."""
    return 1.0 if factor <= 1 else 1.0 + 0.1 * multiplier * math.log(factor)


def llama3_divisors(
    base: float, rotary_size: int, factor: float, low: float, high: float, original: int
) -> tuple[float, ...]:
    """What Llama 3.1's scaling divides each frequency by, R values.

    With wavelength λ = 2π/θ: 1 for λ < original/high, f for λ > original/low, and in between
    1/((1 − s)/f + s) with s = (original/λ − low)/(high − low) (transformers, `rope_type: llama3`).

    Args:
        base: θ base.
        rotary_size: d = 2R.
        factor: f.
        low: `low_freq_factor`.
        high: `high_freq_factor`, above `low`.
        original: positions of the original window.

    Raises:
        InputError: factors that cannot be used.
    """
    if not 0 < low < high:
        raise InputError(f"RoPE scaling llama3: low_freq_factor {low} is not between 0 and {high}")
    if not 1 <= factor < math.inf:
        raise InputError(f"RoPE scaling factor {factor} is below 1")
    divisors = []
    for i in range(rotary_size // 2):
        wavelength = 2 * math.pi * base ** (2 * i / rotary_size)
        share = (original / wavelength - low) / (high - low)
        share = min(max(share, 0.0), 1.0)
        divisors.append(1 / ((1 - share) / factor + share))
    return tuple(divisors)


def parse_rope_scaling(text: str) -> RopeScaling:
    """`none`, `linear:F` or `yarn:F:ORIGINAL[:key=value…]` as `--rope-scaling` takes them.

    Keys: beta_fast, beta_slow, ext_factor, attn_factor, log_multiplier, magnitude (also attention_factor),
    mscale with mscale_all_dim, truncate.

    Raises:
        InputError: anything else; names the part.
    """
    kind, *rest = text.split(":")
    plain = [part for part in rest if "=" not in part]
    options = rest[len(plain) :]
    expected = {"none": 0, "linear": 1, "yarn": 2}.get(kind)
    form = "none, linear:F or yarn:F:ORIGINAL[:key=value…]"
    if expected is None or len(plain) != expected or any("=" not in part for part in options):
        raise InputError(f"--rope-scaling {text!r} is not of the form {form}")
    if kind != "yarn" and options:
        raise InputError(f"--rope-scaling {text!r}: {kind} takes no keys")
    given: dict[str, float] = {}
    if plain:
        given["factor"] = _number(text, "factor", plain[0])
    original = None
    if kind == "yarn":
        if not plain[1].isascii() or not plain[1].isdigit():
            raise InputError(f"--rope-scaling {text!r}: original length {plain[1]!r} is not a whole number")
        original = int(plain[1])
    truncate = True
    scales: dict[str, float] = {}
    for option in options:
        key, _, value = option.partition("=")
        key = "magnitude" if key == "attention_factor" else key
        if key in given or key in scales:
            raise InputError(f"--rope-scaling {text!r}: {key} is given twice")
        if key == "truncate":
            if value not in ("true", "false"):
                raise InputError(f"--rope-scaling {text!r}: truncate is true or false, not {value!r}")
            truncate = value == "true"
        elif key in _NUMBERS:
            given[key] = _number(text, key, value)
        elif key in ("mscale", "mscale_all_dim"):
            scales[key] = _number(text, key, value)
        else:
            raise InputError(f"--rope-scaling {text!r}: there is no key {key!r}")
    if scales:
        if len(scales) != 2 or "magnitude" in given:
            raise InputError(
                f"--rope-scaling {text!r}: mscale and mscale_all_dim come together, without magnitude"
            )
        given["magnitude"] = scaled_magnitude(given["factor"], scales["mscale"], scales["mscale_all_dim"])
    return RopeScaling(kind, original=original, truncate=truncate, **given)  # type: ignore[arg-type]


def scaled_magnitude(factor: float, mscale: float, mscale_all_dim: float) -> float:
    """The magnitude that `mscale` and `mscale_all_dim` of a Hugging Face config give."""
    return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim)


def _number(text: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"--rope-scaling {text!r}: {key} {value!r} is not a number")
    return number
