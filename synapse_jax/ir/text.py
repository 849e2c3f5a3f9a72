"""A stable printer of the Model IR: what people read and what identities hash."""

from __future__ import annotations

from itertools import groupby

from synapse_jax.ir.nodes import Block, ModelIR, Node, Value
from synapse_jax.spec.digest import canonical_json
from synapse_jax.spec.rope import RopeProfile


def ir_text(ir: ModelIR) -> str:
    """The IR as text, the same in every process.

    Equal neighbouring layers are printed once, with their range. The header holds the model; RoPE
    profile, precision, KV dtype, page size and attention policy are printed by `profile_text`,
    since an identity hashes them apart.
    """
    spec = ir.spec
    lines = [
        f"model {spec.arch} layers={spec.layers} width={spec.width} ffn={spec.ffn_width} "
        f"heads={spec.query_heads}/{spec.kv_heads}x{spec.head_size} vocab={spec.vocab_size}",
    ]
    lines += _block_lines(ir.embed.name, ir.embed)
    first = 0
    for block, run in groupby(ir.layers):
        last = first + len(list(run)) - 1
        name = f"layers {first}…{last}" if last > first else f"layer {first}"
        lines += _block_lines(name, block)
        first = last + 1
    lines += _block_lines(ir.head.name, ir.head)
    return "\n".join(lines) + "\n"


def profile_text(ir: ModelIR) -> str:
    """The resolved runtime choices that change numbers, a line each."""
    profile = ir.profile
    return (
        "".join(f"{_rope_line(index, rope, ir.context_limit)}\n" for index, rope in enumerate(ir.rope_tables))
        + f"attention {profile.attention}\n"
        f"precision {profile.precision}\n"
        f"kv_dtype {profile.kv_dtype}\n"
        f"page_size {profile.page_size}\n" + ("layers scan\n" if profile.layers == "scan" else "")
    )


def _rope_line(table: int, rope: RopeProfile, limit: int) -> str:
    line = (
        f"rope table={table} {rope.type} base={rope.base!r} rotary={rope.rotary_size} factor={rope.factor!r} "
        f"original={rope.original} trained={rope.trained_context} limit={limit}"
    )
    if rope.type == "none":
        return line
    line += f" magnitude={rope.magnitude!r}"
    if rope.type == "yarn":
        line += (
            f" beta_fast={rope.beta_fast!r} beta_slow={rope.beta_slow!r} ext_factor={rope.ext_factor!r} "
            f"truncate={rope.truncate}"
        )
    if rope.divisors:
        line += f" divisors={canonical_json(rope.divisors)}"
    return line


def _block_lines(title: str, block: Block) -> list[str]:
    return [f"{title}:"] + [f"  {_node_line(node)}" for node in block.nodes]


def _node_line(node: Node) -> str:
    arguments = [value.name for value in node.inputs]
    arguments += [f"{weight.name}{_shape(weight.shape)}" for weight in node.weights]
    arguments += [f"{name}={value!r}" for name, value in node.attributes]
    return f"{node.output.name} = {node.op}({', '.join(arguments)}) : {_typed(node.output)}"


def _typed(value: Value) -> str:
    return f"{value.dtype}{_shape(value.shape)}"


def _shape(shape: tuple[int | str, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
