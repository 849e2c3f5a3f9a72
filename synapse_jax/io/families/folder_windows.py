"""Sliding windows as config.json declares them, applied as transformers applies them."""

from __future__ import annotations

from synapse_jax.io.families.rope_fields import FULL, SLIDING
from synapse_jax.io.folder_config import Config
from synapse_jax.io.quoting import quote

Window = tuple[int, tuple[bool, ...]]
"""`ModelSpec.window` and `ModelSpec.window_layers`; (0, ()) where no layer slides."""

_MISTRAL_WINDOW = 4096
"""`sliding_window` of transformers' MistralConfig, where a config has no such field."""


def read_layer_types(config: Config, layers: int) -> tuple[bool, ...] | None:
    """Which layers slide by `layer_types`, None where it is absent; InputError for other kinds of layers."""
    given = config.get("layer_types")
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != layers:
        raise config.fail("layer_types", f"is {quote(given)}, not a kind for each of {layers} layers")
    for kind in given:
        if kind not in (FULL, SLIDING):
            raise config.fail("layer_types", f"has {quote(kind)}, not {FULL} or {SLIDING}")
    return tuple(kind == SLIDING for kind in given)


def every_layer(config: Config, layers: int) -> Window:
    """As in Mistral and Phi-3: all layers slide where there is a window."""
    size = config.positive("sliding_window") if config.has("sliding_window") else 0
    config.skip("sliding_window")
    return _uniform(config, size, layers)


def every_layer_of_mistral(config: Config, layers: int, notes: list[str]) -> Window:
    """As `every_layer`; Mistral's config has a window unless it says null."""
    if "sliding_window" in config:
        return every_layer(config, layers)
    notes.append(f"sliding_window is missing: {_MISTRAL_WINDOW} is used, as in transformers")
    return _uniform(config, _MISTRAL_WINDOW, layers)


def _uniform(config: Config, size: int, layers: int) -> Window:
    types = read_layer_types(config, layers)
    if types is not None and types != (size > 0,) * layers:
        raise config.fail(
            "layer_types",
            f"does not fit sliding_window {size or 'null'}, which all layers of this model have",
        )
    return (size, (True,) * layers) if size else (0, ())


def no_layer(config: Config, layers: int) -> Window:
    """As in Llama: no layer slides, and a config that says otherwise is refused."""
    for field in ("sliding_window", "use_sliding_window"):
        if config.get(field) not in (None, False):
            raise config.fail(field, f"is {quote(config.get(field))}, which this model does not have")
    types = read_layer_types(config, layers)
    if types is not None and any(types):
        raise config.fail("layer_types", f"has {SLIDING}, which this model does not have")
    return 0, ()


def upper_layers(config: Config, layers: int) -> Window:
    """As in Qwen2 and Qwen3: with `use_sliding_window`, layers from `max_window_layers` on slide."""
    config.skip("sliding_window", "max_window_layers")
    types = read_layer_types(config, layers)
    if not config.flag("use_sliding_window", False):
        if types is not None and any(types):
            raise config.fail("layer_types", f"has {SLIDING}, but use_sliding_window is not true")
        return 0, ()
    size = config.positive("sliding_window")
    if types is None:
        first = config.require("max_window_layers")
        if isinstance(first, bool) or not isinstance(first, int) or first < 0:
            raise config.fail("max_window_layers", f"is {quote(first)}, not a number of layers")
        types = tuple(i >= first for i in range(layers))
    return (size, types) if any(types) else (0, ())


def periodic_layers(config: Config, layers: int, period: int, notes: list[str]) -> Window:
    """As in Gemma 3: the last of every `period` layers sees all keys, unless `layer_types` says otherwise."""
    types = read_layer_types(config, layers)
    names = [name for name in ("sliding_window_pattern", "_sliding_window_pattern") if config.has(name)]
    values = {config.positive(name) for name in names}
    if len(values) > 1:
        raise config.fail(names[0], f"and {names[1]} differ: {sorted(values)}")
    if types is None:
        if not values:
            notes.append(f"layer_types and sliding_window_pattern are missing: {period} is used")
        period = values.pop() if values else period
        types = tuple(i % period < period - 1 for i in range(layers))
    if not any(types):
        config.skip("sliding_window")
        return 0, ()
    return config.positive("sliding_window"), types
