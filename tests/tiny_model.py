"""A TINY model in memory: what a session needs of a model, without a file."""

from __future__ import annotations

import numpy as np

from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope_scaling import RopeScaling
from tests.tiny import Tiny, tiny_weights


def tiny_spec(tiny: Tiny | None = None) -> ModelSpec:
    """The spec of a TINY model."""
    tiny = tiny or Tiny()
    is_gemma = tiny.arch == "gemma3"
    return ModelSpec(
        arch=tiny.arch,
        layers=tiny.layers,
        width=tiny.D,
        ffn_width=tiny.ffn_width,
        query_heads=tiny.query_heads,
        kv_heads=tiny.kv_heads,
        head_size=tiny.head_size,
        rotary_size=tiny.rotary,
        vocab_size=tiny.vocab,
        trained_context=tiny.context,
        norm_epsilon=tiny.norm_epsilon,
        rope_base=tiny.rope_base,
        rope_scaling=_scaling(tiny),
        local_rope_base=tiny.local_rope_base if is_gemma and tiny.window else None,
        qkv_bias=tiny.biased,
        tied_output=tiny.tied,
        qk_norm=tiny.has_qk_norm,
        post_norms=is_gemma,
        activation="gelu" if is_gemma else "silu",
        embed_scale=tiny.D**0.5 if is_gemma else 1.0,
        window=tiny.window,
        window_layers=tiny.window_layers if tiny.window else (),
    )


def _scaling(tiny: Tiny) -> RopeScaling:
    rope = tiny.rope
    if rope is None:
        return RopeScaling()
    given = {}
    if rope.type == "yarn":
        given = {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "ext_factor": rope.ext_factor}
    return RopeScaling(
        rope.type,
        factor=rope.factor if rope.type in ("linear", "yarn") else 1.0,
        original=rope.original,
        magnitude=rope.magnitude(tiny.context),
        divisors=tuple(rope.divisors(tiny.rope_base, tiny.rotary)) if rope.type == "llama3" else (),
        short_divisors=rope.short,
        long_divisors=rope.long,
        **given,
    )


class TinyModel:
    """Spec and weights of a TINY model; no tokenizer, and stop tokens only where given."""

    def __init__(self, tiny: Tiny | None = None, stop_ids: tuple[int, ...] = ()):
        self.tiny = tiny or Tiny()
        self.spec = tiny_spec(self.tiny)
        self.stop_ids = stop_ids
        self.weights = tiny_weights(self.tiny)

    def read_weight(self, name: str) -> np.ndarray:
        return self.weights[name].copy()
