"""The shape of a small decoder, and the model that it describes."""

from __future__ import annotations

import dataclasses

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.families.synapse import trained_policy
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope_scaling import RopeScaling


@dataclasses.dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder of the llama architecture, and the attention policy that it is trained with.

    The defaults have 3.28 million parameters and exactly 1 KiB of 16-bit keys and values a position.
    """

    vocabulary: int = 4096
    """V, tokens."""
    width: int = 256
    """D, size of the residual stream."""
    layers: int = 4
    """L, transformer blocks."""
    query_heads: int = 4
    """N, query heads a layer."""
    kv_heads: int = 1
    """K, key and value heads a layer; divides N."""
    head_size: int = 64
    """H, size of a head, all of it rotated; even."""
    ffn_width: int = 512
    """F, inner size of the gated feed-forward."""
    tied_output: bool = True
    """Whether the output head is the embedding itself."""
    rope_base: float = 10000.0
    """θ base of the rotary frequencies."""
    norm_epsilon: float = 1e-5
    """Added to the mean square in every RMS norm."""
    context: int = 1024
    """The trained window, in positions."""
    attention: str = "dense"
    """Attention policy (`spec.attention`) in its canonical form, whatever form is given."""

    def __post_init__(self):
        object.__setattr__(self, "attention", trained_policy(self.attention))
        if not isinstance(self.tied_output, bool):
            raise InputError(f"model: tied_output is {self.tied_output!r}, not true or false")
        for field in ("rope_base", "norm_epsilon"):
            # Files hold them as float32: a model and its file are to have equal specs.
            try:
                with np.errstate(over="ignore"):
                    value = float(np.float32(getattr(self, field)))
            except (TypeError, ValueError):
                raise InputError(f"model: {field} is {getattr(self, field)!r}, not a number") from None
            object.__setattr__(self, field, value)
        self.spec()

    def spec(self) -> ModelSpec:
        """What the decoder computes: architecture `llama`, or `synapse` where its attention is not dense.

        Raises:
            InputError: a size that no model has; the message names it.
        """
        return ModelSpec(
            arch="llama" if self.attention == "dense" else "synapse",
            layers=self.layers,
            width=self.width,
            ffn_width=self.ffn_width,
            query_heads=self.query_heads,
            kv_heads=self.kv_heads,
            head_size=self.head_size,
            rotary_size=self.head_size,
            vocab_size=self.vocabulary,
            trained_context=self.context,
            norm_epsilon=self.norm_epsilon,
            rope_base=self.rope_base,
            rope_scaling=RopeScaling(),
            local_rope_base=None,
            qkv_bias=False,
            tied_output=self.tied_output,
            attention=self.attention,
        )

    @property
    def parameters(self) -> int:
        """How many numbers training adjusts."""
        D, H = self.width, self.head_size
        attention = 2 * (self.query_heads + self.kv_heads) * H * D
        layer = attention + 3 * self.ffn_width * D + 2 * D
        matrices = 1 if self.tied_output else 2
        return matrices * self.vocabulary * D + self.layers * layer + D

    @property
    def kv_position_bytes(self) -> int:
        """Bytes of 16-bit keys and values that every cached position takes, over all layers."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_size


def shape_of(spec: ModelSpec) -> DecoderShape:
    """The shape of a model.

    Raises:
        InputError: the model is not one that a `DecoderShape` describes; the message names the field.
    """
    shape = DecoderShape(
        vocabulary=spec.vocab_size,
        width=spec.width,
        layers=spec.layers,
        query_heads=spec.query_heads,
        kv_heads=spec.kv_heads,
        head_size=spec.head_size,
        ffn_width=spec.ffn_width,
        tied_output=spec.tied_output,
        rope_base=spec.rope_base,
        norm_epsilon=spec.norm_epsilon,
        context=spec.trained_context,
        attention=spec.attention,
    )
    plain = shape.spec()
    for field in dataclasses.fields(ModelSpec):
        found, wanted = getattr(spec, field.name), getattr(plain, field.name)
        if found != wanted:
            raise InputError(f"model: {field.name} is {found!r}; a small decoder has {wanted!r}")
    return shape
