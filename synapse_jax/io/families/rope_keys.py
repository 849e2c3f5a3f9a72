"""RoPE scaling as GGUF files declare it: keys under `ARCH.rope`, and tensors of divisors."""

from __future__ import annotations

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
KNOWN_KEYS = frozenset(
    (
        "rope.scale_linear",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.attn_factor",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
        "rope.scaling.yarn_attn_factor",
        *(f"rope.scaling.{name}" for name in _YARN_NUMBERS),
    )
)
"""Keys that are read here, without the architecture's prefix; `finetuned` is a remark."""
DIVISORS, SHORT, LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
"""Tensors of divisors: llama3's, and longrope's two."""
TENSORS = (DIVISORS, SHORT, LONG)


def read_scaling(file: GgufFile, arch: str, rotary_size: int, notes: list[str]) -> RopeScaling:
    """The scaling that a file declares.

    A factor without a type means linear, as in llama.cpp; `none` switches a factor off, which is noted;
    `rope.scale_linear` counts where there is no factor; 0 means that a number is not set.

    Args:
      file: an open file.
      arch: prefix of the keys.
      rotary_size: d, for the length of the divisors.
      notes: gets a line for a factor that the file itself switches off.

    Raises:
      InputError: an unknown type, numbers or tensors that do not fit together.
    """
    prefix = f"{arch}.rope.scaling."
    kind = file.optional_text(prefix + "type")
    if kind not in (None, "none", "linear", "yarn", "longrope"):
        raise file.fail(prefix + "type", f"is {quote(kind)}, not none, linear, yarn or longrope")
    factor_key, factor = _factor(file, arch)
    if kind == "none" and factor != 1:
        notes.append(f"{factor_key} is {factor}, but {prefix}type is 'none': positions are not scaled")
        factor = 1.0
    if kind is None or kind == "linear":
        kind = "none" if factor == 1 else "linear"
    fields: dict[str, float] = {}
    if kind == "yarn":
        for name, field in _YARN_NUMBERS.items():
            value = file.optional_float(prefix + name)
            # 0 is a share of the mix like another, and a negative one llama.cpp's "by the type".
            is_set = value is not None and (value >= 0 if field == "ext_factor" else value != 0)
            if is_set and value is not None:
                fields[field] = value
    attn_factor = 1.0
    for name in ("attn_factor", *(["yarn_attn_factor"] if kind == "yarn" else [])):
        attn_factor *= file.optional_float(prefix + name) or 1.0
    divisors = {name: _divisors(file, name, rotary_size) for name in TENSORS if name in file.tensors}
    if DIVISORS in divisors:
        if kind != "none":
            raise file.fail(f"tensor '{DIVISORS}'", f"is there, and {prefix}type is {quote(kind)} as well")
        kind = "llama3"
    if (kind == "longrope") != (SHORT in divisors and LONG in divisors):
        raise file.fail(
            prefix + "type",
            f"is {quote(kind)}: longrope and the tensors '{SHORT}' and '{LONG}' come together",
        )
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
    for key in (f"{arch}.rope.scaling.factor", f"{arch}.rope.scale_linear"):
        if factor := file.optional_float(key):
            return key, factor
    return "", 1.0


def _divisors(file: GgufFile, name: str, rotary_size: int) -> tuple[float, ...]:
    file.require_readable(name)
    shape = file.tensors[name].shape
    if shape != (rotary_size // 2,):
        raise file.fail(
            f"tensor '{name}'", f"has shape {list(shape)}, the metadata asks for [{rotary_size // 2}]"
        )
    return tuple(float(value) for value in file.read(name))
