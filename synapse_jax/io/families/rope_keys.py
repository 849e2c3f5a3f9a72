"""RoPE scaling as GGUF files declare it: keys under `ARCH.rope`, and tensors of divisors.

Follows `llama_model_base::load_hparams` and the constructor of `llama_context` in llama.cpp.
"""

from __future__ import annotations

from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.spec.rope_scaling import RopeScaling

_YARN_NUMBERS = {
    "yarn_ext_factor": "ext_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
    "yarn_log_multiplier": "log_multiplier",
}
_YARN_KEYS = (*_YARN_NUMBERS, "yarn_attn_factor")
KNOWN_KEYS = frozenset(
    (
        "rope.scale_linear",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.attn_factor",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
        *(f"rope.scaling.{name}" for name in _YARN_KEYS),
    )
)
"""Keys that are read here, without the architecture's prefix; `finetuned` is a remark."""
DIVISORS, SHORT, LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
"""Tensors of divisors: llama3's, and longrope's two."""
TENSORS = (DIVISORS, SHORT, LONG)


def read_scaling(file: GgufFile, arch: str, rotary_size: int, notes: list[str]) -> RopeScaling:
    """The scaling that a file declares.

    A factor without a type means linear; `none` switches a factor off, which is noted; `rope.scale_linear`
    counts where there is no factor; 0 means that a number is not set. `rope_freqs.weight` makes the type
    llama3, and the two tensors of longrope make it longrope: converters of Phi-3 write no type. Under
    longrope attn_factor is the whole magnitude, elsewhere it multiplies the type's own.

    Args:
      file: an open file.
      arch: prefix of the keys.
      rotary_size: d, for the length of the divisors.
      notes: gets a line for each number that the file itself switches off.

    Raises:
      InputError: an unknown type, numbers or tensors that do not fit together.
    """
    prefix = f"{arch}.rope.scaling."
    factor_key, factor = _factor(file, arch)
    kind, factor = _kind(file, prefix, factor_key, factor, notes)
    divisors = {name: _divisors(file, name, rotary_size) for name in TENSORS if name in file.tensors}
    attn_factor = file.optional_float(prefix + "attn_factor") or 1.0
    fields: dict[str, Any] = {}
    if kind == "yarn":
        fields = _yarn_numbers(file, prefix)
        attn_factor *= file.optional_float(prefix + "yarn_attn_factor") or 1.0
    else:
        unused = [name for name in _YARN_KEYS if prefix + name in file.metadata]
        if unused:
            notes.append(f"{prefix}{', '.join(unused)}: not used, since the type is {quote(kind)}")
    if kind == "longrope":
        if file.optional_float(prefix + "attn_factor"):
            fields["magnitude"], attn_factor = attn_factor, 1.0
    elif kind == "none" and attn_factor != 1:
        # llama.cpp applies it whatever the type; its own "none" is linear with a factor of 1.
        kind = "linear"
    original = file.optional_int(prefix + "original_context_length") or None
    try:
        return RopeScaling(
            kind,
            factor=factor,
            original=original,
            attn_factor=attn_factor,
            divisors=divisors.get(DIVISORS, ()),
            short_divisors=divisors.get(SHORT, ()),
            long_divisors=divisors.get(LONG, ()),
            **fields,
        )
    except InputError as error:
        raise InputError(f"{shown_path(file.path)}: {arch}.rope.scaling: {error}") from None


def _factor(file: GgufFile, arch: str) -> tuple[str, float]:
    """The key that gives the factor, and the factor: 1 where no key does, or one with 0."""
    for key in (f"{arch}.rope.scaling.factor", f"{arch}.rope.scale_linear"):
        if (factor := file.optional_float(key)) is not None:
            return key, factor or 1.0
    return f"{arch}.rope.scaling.factor", 1.0


def _kind(file: GgufFile, prefix: str, factor_key: str, factor: float, notes: list[str]) -> tuple[str, float]:
    """The type, by its key or by what is there instead, and the factor that is left."""
    key = prefix + "type"
    kind = file.optional_text(key)
    if kind not in (None, "none", "linear", "yarn", "longrope"):
        raise file.fail(key, f"is {quote(kind)}, not none, linear, yarn or longrope")
    if kind == "none" and factor != 1:
        notes.append(f"{factor_key} is {factor}, but {key} is 'none': positions are not scaled")
        factor = 1.0
    long_tensors = [name for name in (SHORT, LONG) if name in file.tensors]
    if kind is None and long_tensors:
        kind = "longrope"
    if (kind == "longrope") != (len(long_tensors) == 2):
        raise file.fail(
            key, f"is {quote(kind)}: longrope and the tensors '{SHORT}' and '{LONG}' come together"
        )
    if kind == "longrope" and factor != 1:
        raise file.fail(factor_key, f"is {factor}, but longrope has divisors and no factor")
    if kind is None or kind == "linear":
        kind = "none" if factor == 1 else "linear"
    if DIVISORS in file.tensors:
        if kind != "none":
            raise file.fail(f"tensor '{DIVISORS}'", f"is there, and scaling of type {quote(kind)} as well")
        kind = "llama3"
    return kind, factor


def _yarn_numbers(file: GgufFile, prefix: str) -> dict[str, float]:
    numbers = {}
    for name, field in _YARN_NUMBERS.items():
        value = file.optional_float(prefix + name)
        # An ext_factor of 0 is a share of the mix like another; a negative one is llama.cpp's "by the type".
        if value is not None and (value >= 0 if field == "ext_factor" else value != 0):
            numbers[field] = value
    return numbers


def _divisors(file: GgufFile, name: str, rotary_size: int) -> tuple[float, ...]:
    file.require_readable(name)
    shape = file.tensors[name].shape
    if shape != (rotary_size // 2,):
        raise file.fail(
            f"tensor '{name}'", f"has shape {list(shape)}, the metadata asks for [{rotary_size // 2}]"
        )
    return tuple(float(value) for value in file.read(name))
