"""Sliding windows as GGUF files declare them: a number of keys, and the layers that see no more."""

from __future__ import annotations

from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.quoting import quote

KNOWN_KEYS = frozenset(("attention.sliding_window", "attention.sliding_window_pattern"))
"""Keys that are read here, without the architecture's prefix."""


def read_window(
    file: GgufFile, arch: str, layers: int, period: int, notes: list[str]
) -> tuple[int, tuple[bool, ...]]:
    """The window and its layers, as `ModelSpec.window` and `ModelSpec.window_layers` hold them.

    Layer i sees all keys where i mod period = period − 1, and no layer does for a period of 0
    (`llama_hparams::set_swa_pattern` in llama.cpp). A file's pattern is such a number, or an array with a
    truth value for each layer.

    Args:
      file: an open file.
      arch: prefix of the keys.
      layers: L.
      period: the family's own, where the file has no pattern.
      notes: gets a line where the family's own pattern is used though the file could have one.

    Returns:
      (0, ()) where no layer slides.

    Raises:
      InputError: a window or a pattern that cannot be used.
    """
    key = f"{arch}.attention.sliding_window"
    if file.value_types.get(key, "").startswith("array"):
        raise file.fail(key, "is an array with a value for each layer, which is not supported")
    window = file.optional_int(key) or 0
    if window < 0:
        raise file.fail(key, f"is {window}, not a number of keys")
    if not window:
        return 0, ()
    pattern = _pattern(file, f"{key}_pattern", layers)
    if pattern is None:
        pattern = _periodic(period, layers)
        if period:
            notes.append(f"{key}_pattern is missing: {period} is used")
    return (window, pattern) if any(pattern) else (0, ())


def _pattern(file: GgufFile, key: str, layers: int) -> tuple[bool, ...] | None:
    value = file.metadata.get(key)
    if value is None:
        return None
    if not file.value_types[key].startswith("array"):
        period = file.require_int(key)
        if period < 0:
            raise file.fail(key, f"is {period}, not a number of layers")
        return _periodic(period, layers)
    values = list(value) if not isinstance(value, (int, float, str, bytes)) else []
    # Converters write booleans, and some 0 and 1.
    if len(values) != layers or any(isinstance(v, (str, bytes)) or v not in (0, 1) for v in values):
        raise file.fail(key, f"is {quote(value)}, not a truth value for each of {layers} layers")
    return tuple(bool(v) for v in values)


def _periodic(period: int, layers: int) -> tuple[bool, ...]:
    return tuple(period == 0 or i % period < period - 1 for i in range(layers))
