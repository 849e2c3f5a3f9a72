"""RoPE as config.json declares it: `rope_scaling` of older files, `rope_parameters` since transformers 5."""

from __future__ import annotations

import dataclasses
import math

from synapse_jax.errors import InputError
from synapse_jax.io.folder_config import Config
from synapse_jax.io.quoting import quote
from synapse_jax.spec.rope_scaling import RopeScaling, llama3_divisors, scaled_magnitude

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers; where they rotate differently, `rope_parameters` has an object for each."""
DEFAULT_BASE = 10000.0
"""`default_theta` of transformers' `RotaryEmbeddingConfigMixin`."""

_ORIGINAL = "original_max_position_embeddings"
_TYPES = ("default", "linear", "yarn", "llama3", "longrope")


@dataclasses.dataclass(frozen=True)
class RopeFields:
    """What a config says about the rotation of one kind of layers."""

    base: float
    """θ base."""
    rotary_size: int
    """d, leading dimensions of a head that are rotated."""
    scaling: RopeScaling
    """As declared."""


def rope_sections(config: Config) -> dict[str, Config]:
    """The RoPE objects of a config by kind of layer; a plain one is that of full layers.

    Raises:
      InputError: `rope_scaling` and `rope_parameters` are both there and differ, or objects of both forms
        are mixed.
    """
    old, new = config.section("rope_scaling"), config.section("rope_parameters")
    if old is not None and new is not None and not old.same_values(new):
        raise config.fail("rope_scaling", "is there, and rope_parameters with other values as well")
    section = new or old
    if section is None:
        return {}
    if not (section.has(FULL) or section.has(SLIDING)):
        return {FULL: section}
    found = {kind: section.section(kind) for kind in (FULL, SLIDING)}
    for field in section.unread():
        raise section.fail(field, f"is there beside {FULL} and {SLIDING}")
    return {kind: inner for kind, inner in found.items() if inner is not None}


def only_section(config: Config) -> Config | None:
    """The RoPE object of a model whose layers all rotate alike; InputError if sliding ones have their own."""
    sections = rope_sections(config)
    if SLIDING in sections:
        raise sections[SLIDING].fail("rope_type", "layers of this model all rotate alike")
    return sections.get(FULL)


def read_base(
    config: Config, section: Config | None, notes: list[str], *, field: str = "rope_theta",
    default: float = DEFAULT_BASE,
) -> float:  # fmt: skip
    """θ base, of the RoPE object or beside it.

    Args:
      config: the whole.
      section: the RoPE object.
      notes: gets a line where the default is used.
      field: its name beside the object; in it, it is always `rope_theta`.
      default: the family's own.
    """
    inner = section.number("rope_theta", 0.0) if section is not None else 0.0
    outer = config.number(field, 0.0)
    if section is not None and section.has("rope_theta"):
        if config.has(field) and inner != outer:
            raise section.fail("rope_theta", f"is {inner}, but {field} is {outer}")
        return _above_zero(section, "rope_theta", inner)
    if config.has(field):
        return _above_zero(config, field, outer)
    notes.append(f"{field} is missing: {default} is used")
    return default


def read_rope(
    config: Config,
    section: Config | None,
    notes: list[str],
    *,
    head_size: int,
    base: float,
    partial: bool = False,
    as_longrope: tuple[str, ...] = (),
) -> RopeFields:
    """The rotation of layers.

    Args:
      config: the whole.
      section: the RoPE object, None where there is none.
      notes: gets a line for a field that changes nothing.
      head_size: H.
      base: θ base.
      partial: whether the family can rotate a part of a head.
      as_longrope: other names that the family has for longrope.

    Raises:
      InputError: an unknown type, a field that the type does not have, numbers that cannot be used.
    """
    section = section or Config(config.shown, {}, "rope_parameters.")
    kind = _kind(section)
    kind = "longrope" if kind in as_longrope else kind
    if kind not in _TYPES:
        raise section.fail("rope_type", f"is {quote(kind)}, which is not supported; {', '.join(_TYPES)} are")
    rotary_size = _rotary_size(config, section, head_size, partial)
    try:
        scaling = _scaling(config, section, kind, base, rotary_size, notes)
    except InputError as error:
        if str(error).startswith("RoPE scaling"):
            raise InputError(f"{config.shown}: {error}") from None
        raise
    section.skip("finetuned", "rope_theta")
    for field in section.unread():
        raise section.fail(field, f"is there, which RoPE of type {quote(kind)} does not have")
    return RopeFields(base, rotary_size, scaling)


def _kind(section: Config) -> str:
    new, old = section.text("rope_type"), section.text("type")
    if new is not None and old is not None and new != old:
        raise section.fail("rope_type", f"is {quote(new)}, but type is {quote(old)}")
    return new or old or "default"


def _rotary_size(config: Config, section: Config, head_size: int, partial: bool) -> int:
    inner, outer = section.number("partial_rotary_factor", 1.0), config.number("partial_rotary_factor", 1.0)
    both = section.has("partial_rotary_factor") and config.has("partial_rotary_factor")
    if both and inner != outer:
        raise section.fail("partial_rotary_factor", f"is {inner}, but beside it it is {outer}")
    share = inner if section.has("partial_rotary_factor") else outer
    if not 0 < share <= 1 or (share != 1 and not partial):
        raise config.fail("partial_rotary_factor", f"is {share}, which is not supported for this model")
    return int(head_size * share)


def _scaling(
    config: Config, section: Config, kind: str, base: float, rotary_size: int, notes: list[str]
) -> RopeScaling:
    if kind == "default":
        return RopeScaling()
    if kind == "linear":
        factor = section.number("factor")
        return RopeScaling("linear", factor) if factor != 1 else RopeScaling()
    original = _original(config, section)
    if kind == "llama3":
        factor = section.number("factor")
        low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
        trained = original or config.positive("max_position_embeddings")
        divisors = llama3_divisors(base, rotary_size, factor, low, high, trained)
        return RopeScaling("llama3", divisors=divisors)
    if kind == "longrope":
        return _longrope(section, original, rotary_size)
    return _yarn(section, original, notes)


def _original(config: Config, section: Config) -> int | None:
    """Positions of the original window: in the RoPE object, or beside it as Phi-3 has it."""
    inner = section.positive(_ORIGINAL) if section.has(_ORIGINAL) else None
    outer = config.positive(_ORIGINAL) if config.has(_ORIGINAL) else None
    if inner is not None and outer is not None and inner != outer:
        raise section.fail(_ORIGINAL, f"is {inner}, but beside it it is {outer}")
    return inner or outer


def _yarn(section: Config, original: int | None, notes: list[str]) -> RopeScaling:
    factor = section.number("factor")
    magnitude = None
    scales = {name: section.number(name, 0.0) for name in ("mscale", "mscale_all_dim")}
    if section.has("attention_factor"):
        magnitude = section.number("attention_factor")
    elif all(scales.values()):
        magnitude = scaled_magnitude(factor, scales["mscale"], scales["mscale_all_dim"])
    elif any(scales.values()):
        notes.append("rope_scaling: mscale and mscale_all_dim count only together: neither is used")
    return RopeScaling(
        "yarn",
        factor,
        original,
        # 0 is how configs spell "not set", as in transformers.
        beta_fast=section.number("beta_fast", 0.0) or RopeScaling.beta_fast,
        beta_slow=section.number("beta_slow", 0.0) or RopeScaling.beta_slow,
        truncate=section.flag("truncate", True),
        magnitude=magnitude,
    )


def _longrope(section: Config, original: int | None, rotary_size: int) -> RopeScaling:
    short = section.numbers("short_factor", rotary_size // 2)
    long = section.numbers("long_factor", rotary_size // 2)
    if original is None:
        raise section.fail(_ORIGINAL, "is missing, and beside it as well")
    magnitude = None
    if section.has("attention_factor"):
        magnitude = section.number("attention_factor")
    if section.has("factor"):
        # It decides the magnitude only, in place of max_position_embeddings / original.
        factor = section.number("factor")
        if factor > 1 and original < 2:
            raise section.fail(_ORIGINAL, f"is {original}, below 2")
        if magnitude is None:
            magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return RopeScaling(
        "longrope", original=original, magnitude=magnitude, short_divisors=short, long_divisors=long
    )


def _above_zero(config: Config, field: str, value: float) -> float:
    if value <= 0:
        raise config.fail(field, f"is {value}, not above 0")
    return value
