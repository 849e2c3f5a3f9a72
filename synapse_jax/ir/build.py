"""ModelSpec + RuntimeProfile → ModelIR, with every shape checked as it is built."""

from __future__ import annotations

from synapse_jax.errors import InputError
from synapse_jax.ir.nodes import Attribute, Block, ModelIR, Node, Value, Weight
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile

ROWS = "T"
"""Axis letter of the rows in a step."""
HEAD_ROWS = "T_head"
"""Axis letter of the rows that reach the output head."""


class ShapeError(ValueError):
    """A node does not fit its inputs: a mistake in a builder, never in a user's file."""


def build(spec: ModelSpec, profile: RuntimeProfile) -> ModelIR:
    """Builds the IR of a model under a resolved runtime profile.

    Args:
        spec: what the model is.
        profile: how it runs; `context` and `rope` are filled in (`spec.runtime.resolve`).

    Raises:
        ValueError: the profile is not resolved.
        InputError: layers are to be a loop, and are not of one kind.
        ShapeError: a node does not fit its inputs.
    """
    if profile.context is None or profile.rope is None:
        raise ValueError("the runtime profile is not resolved")
    # Equal layers are one value: they are traced and printed once.
    policy = profile.policy
    sorts = [
        (bool(spec.window_of(layer)), policy.window_of(spec, layer), policy.beyond_mask(spec, layer))
        for layer in range(spec.layers)
    ]
    blocks = {sort: _layer(spec, *sort) for sort in dict.fromkeys(sorts)}
    layers = tuple(blocks[sort] for sort in sorts)
    if profile.layers == "scan" and len(blocks) > 1:
        other = next(layer for layer, sort in enumerate(sorts) if sort != sorts[0])
        raise InputError(
            f"layers=scan needs layers of one kind: layer {other} of {spec.arch} differs from layer 0 in its "
            f"window or its attention policy ({profile.attention})"
        )
    return ModelIR(spec=spec, profile=profile, embed=_embed(spec), layers=layers, head=_head(spec))


class _Builder:
    """Collects the nodes of one block; each method appends a node and returns its output."""

    def __init__(self):
        self.nodes: list[Node] = []

    def node(
        self,
        op: str,
        inputs: tuple[Value, ...],
        weights: tuple[Weight, ...],
        shape: tuple[int | str, ...],
        name: str,
        dtype: str = "f32",
        **attributes: Attribute,
    ) -> Value:
        output = Value(name, shape, dtype)
        self.nodes.append(Node(op, inputs, weights, tuple(sorted(attributes.items())), output))
        return output

    def rms_norm(self, x: Value, weight: str, epsilon: float, name: str) -> Value:
        width = _last(x)
        return self.node("rms_norm", (x,), (Weight(weight, (width,)),), x.shape, name, epsilon=epsilon)

    def linear(self, x: Value, weight: str, outputs: dict[str, int], *, bias: bool = False) -> Value:
        """y = x·Wᵀ (+ b), the rows of W being those of the parts one after the other.

        One product instead of several: rows of a product do not depend on each other, and few large
        operations compile and run faster than many small ones.
        """
        total = sum(outputs.values())
        weights = (_stacked(weight, tuple(outputs), (total, _last(x))),)
        if bias:
            weights += (_stacked(f"{weight}_bias", tuple(f"{part}_bias" for part in outputs), (total,)),)
        return self.node("linear", (x,), weights, (x.shape[0], total), weight)

    def heads(self, x: Value, first: int, count: int, size: int, name: str) -> Value:
        """Heads `first` … `first + count − 1` of the last axis: [T, heads·H] → [T, count, H]."""
        if (first + count) * size > _last(x):
            raise ShapeError(
                f"heads {name}: {_last(x)} holds no heads {first} … {first + count - 1} of {size}"
            )
        return self.node(
            "heads", (x,), (), (x.shape[0], count, size), name, first=first, count=count, size=size
        )

    def rope(self, x: Value, rotary_size: int, table: int) -> Value:
        """Rotates by the RoPE table of that index in `ModelIR.rope_tables`."""
        return self.node("rope", (x,), (), x.shape, f"{x.name}_rotated", rotary_size=rotary_size, table=table)

    def add(self, a: Value, b: Value, name: str) -> Value:
        if a.shape != b.shape:
            raise ShapeError(f"add {name}: {a.shape} and {b.shape} differ")
        return self.node("add", (a, b), (), a.shape, name)

    def block(self, name: str) -> Block:
        return Block(name, tuple(self.nodes))


def _stacked(name: str, parts: tuple[str, ...], shape: tuple[int, ...]) -> Weight:
    return Weight(name, shape, parts if parts != (name,) else ())


def _last(x: Value) -> int:
    size = x.shape[-1]
    if not isinstance(size, int):
        raise ShapeError(f"{x.name}: the last axis {size} is not a number")
    return size


def _embed(spec: ModelSpec) -> Block:
    b = _Builder()
    tokens = Value("tokens", (ROWS,), "i32")
    weight = Weight("embed", (spec.vocab_size, spec.width))
    b.node("embed", (tokens,), (weight,), (ROWS, spec.width), "x", scale=spec.embed_scale)
    return b.block("embed")


def _layer(spec: ModelSpec, is_local: bool, window: int, policy: str) -> Block:
    """Pre-norm attention and gated feed-forward, each added to the residual stream.

    gemma3 norms both once more before they are added; qwen3 and gemma3 norm queries and keys.
    """
    b = _Builder()
    x = Value("x", (ROWS, spec.width), "f32")
    h = b.rms_norm(x, "attn_norm", spec.norm_epsilon, "h")
    query, kv, size = spec.query_heads, spec.kv_heads, spec.head_size
    qkv = b.linear(h, "qkv", {"q": query * size, "k": kv * size, "v": kv * size}, bias=spec.qkv_bias)
    q, k = b.heads(qkv, 0, query, size, "q"), b.heads(qkv, query, kv, size, "k")
    v = b.heads(qkv, query + kv, kv, size, "v")
    if spec.qk_norm:
        q, k = (b.rms_norm(x, f"{x.name}_norm", spec.norm_epsilon, f"{x.name}_normed") for x in (q, k))
    table = 1 if is_local and spec.local_rope_base is not None else 0
    q, k = b.rope(q, spec.rotary_size, table), b.rope(k, spec.rotary_size, table)
    a = b.linear(_attend(b, q, k, v, spec, window, policy), "o", {"o": spec.width})
    if spec.post_norms:
        a = b.rms_norm(a, "attn_post_norm", spec.norm_epsilon, "o_normed")
    x = b.add(x, a, "x_attended")
    h = b.rms_norm(x, "ffn_norm", spec.norm_epsilon, "h_ffn")
    gate_up = b.linear(h, "gate_up", {"gate": spec.ffn_width, "up": spec.ffn_width})
    m = b.node(f"{spec.activation}_gate", (gate_up,), (), (ROWS, spec.ffn_width), "m")
    m = b.linear(m, "down", {"down": spec.width})
    if spec.post_norms:
        m = b.rms_norm(m, "ffn_post_norm", spec.norm_epsilon, "down_normed")
    b.add(x, m, "x")
    return b.block("layer")


def _attend(b: _Builder, q: Value, k: Value, v: Value, spec: ModelSpec, window: int, policy: str) -> Value:
    if q.shape[1:] != (spec.query_heads, spec.head_size) or k.shape != v.shape or q.shape[2] != k.shape[2]:
        raise ShapeError(f"attend: q {q.shape}, k {k.shape}, v {v.shape}")
    shape = (q.shape[0], spec.query_heads * spec.head_size)
    return b.node(
        "attend",
        (q, k, v),
        (),
        shape,
        "a",
        policy=policy,
        scale=spec.attention_scale,
        window=window,
    )


def _head(spec: ModelSpec) -> Block:
    b = _Builder()
    x = Value("x", (HEAD_ROWS, spec.width), "f32")
    h = b.rms_norm(x, "final_norm", spec.norm_epsilon, "h")
    weight = "embed" if spec.tied_output else "head"
    b.linear(h, weight, {weight: spec.vocab_size})
    return b.block("head")
