"""A TINY model in memory: what a session needs of a model, without a file."""

from __future__ import annotations

import numpy as np

from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope_scaling import RopeScaling
from tests.tiny import Tiny, tiny_weights


def tiny_spec(tiny: Tiny | None = None) -> ModelSpec:
    """The spec of a TINY model."""
    tiny = tiny or Tiny()
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
        rope_scaling=RopeScaling(),
        local_rope_base=None,
        qkv_bias=tiny.biased,
        tied_output=tiny.tied,
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
