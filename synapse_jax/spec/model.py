"""What a model file says about the model, as frozen data."""

from __future__ import annotations

import dataclasses
import math

from synapse_jax.errors import InputError
from synapse_jax.spec.rope_scaling import RopeScaling


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A decoder-only transformer with RMS norms, rotary attention and a gated FFN.

    Everything that decides the numbers and nothing about how they are run.
    Weights are in half-split rotary order, whatever the file stores.
    """

    arch: str
    """Architecture, by the name that GGUF gives it: `llama`, `qwen2`, `gemma3` …"""
    layers: int
    """L, transformer blocks."""
    width: int
    """D, size of the residual stream."""
    ffn_width: int
    """F, inner size of the gated feed-forward."""
    query_heads: int
    """N, query heads a layer."""
    kv_heads: int
    """K, key and value heads a layer; divides N."""
    head_size: int
    """H, size of a head; not always D / N."""
    rotary_size: int
    """How many leading dimensions of a head are rotated; even, at most H."""
    vocab_size: int
    """V, rows of the embedding and of the output head."""
    trained_context: int
    """Positions the model was trained for."""
    norm_epsilon: float
    """Added to the mean square in every RMS norm."""
    rope_base: float
    """θ base of the unscaled rotary frequencies."""
    rope_scaling: RopeScaling
    """Scaling that the file declares."""
    local_rope_base: float | None
    """θ base of sliding-window layers, which are never scaled; None where it is the same."""
    qkv_bias: bool
    """Whether the query, key and value projections add a bias."""
    tied_output: bool
    """Whether the output head is the embedding itself."""
    qk_norm: bool = False
    """Whether each head of queries and keys passes an RMS norm of its own before rotation."""
    post_norms: bool = False
    """Whether attention and FFN pass another RMS norm before they are added to the residual stream."""
    activation: str = "silu"
    """Gate of the FFN: `silu`, or `gelu` in its tanh form."""
    embed_scale: float = 1.0
    """Factor on the embedding of a token."""
    query_scale: float | None = None
    """Factor on q·k; None means 1/sqrt(head_size)."""
    window: int = 0
    """Keys that a sliding-window layer sees, the row's own included; 0 where there is no such layer."""
    window_layers: tuple[bool, ...] = ()
    """Which layers see only the window, L values; empty where there is none."""
    attention: str = "dense"
    """Attention policy that the model was trained with (`spec.attention`); `dense` is the masks above and no
    more."""

    def __post_init__(self):
        for field in (
            "layers",
            "width",
            "ffn_width",
            "query_heads",
            "kv_heads",
            "head_size",
            "rotary_size",
            "vocab_size",
            "trained_context",
        ):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"model: {field} is {value!r}, not a positive integer")
        if self.query_heads % self.kv_heads:
            raise InputError(
                f"model: kv_heads {self.kv_heads} does not divide query_heads {self.query_heads}"
            )
        if self.rotary_size % 2 or self.rotary_size > self.head_size:
            raise InputError(
                f"model: rotary_size {self.rotary_size} is odd or above head_size {self.head_size}"
            )
        if self.activation not in ("silu", "gelu"):
            raise InputError(f"model: activation {self.activation!r} is not silu or gelu")
        if len(self.window_layers) not in (0, self.layers) or (self.window > 0) != any(self.window_layers):
            raise InputError(
                f"model: window {self.window} with {sum(self.window_layers)} sliding layers of "
                f"{len(self.window_layers)} in a model of {self.layers}"
            )
        for field in ("norm_epsilon", "rope_base", "local_rope_base", "embed_scale", "query_scale"):
            value = getattr(self, field)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"model: {field} is {value!r}, not a positive finite number")

    def window_of(self, layer: int) -> int:
        """The window of a layer; 0 where it sees every key."""
        return self.window if self.window_layers and self.window_layers[layer] else 0

    @property
    def windows(self) -> tuple[int, ...]:
        """Y windows that layers have, ascending; 0 stands for layers that see every key."""
        return tuple(sorted({self.window_of(layer) for layer in range(self.layers)}))

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """The kind of each layer: the index of its window in `windows`."""
        return tuple(self.windows.index(self.window_of(layer)) for layer in range(self.layers))

    @property
    def attention_scale(self) -> float:
        """Factor on q·k."""
        return 1 / math.sqrt(self.head_size) if self.query_scale is None else self.query_scale

    @property
    def group_size(self) -> int:
        """G = N / K, query heads that share a key head."""
        return self.query_heads // self.kv_heads
