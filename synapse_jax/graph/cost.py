"""What a graph costs, by the compiler's own analysis, and which layers it goes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct as Abstract

from synapse_jax.graph.attend import entry_attention, selects_pages
from synapse_jax.graph.compile import CompiledEntry, LoweredEntry
from synapse_jax.graph.describe import ranges
from synapse_jax.graph.entry import Entry, abstract_arguments, abstract_batch
from synapse_jax.graph.lower import Model
from synapse_jax.ir.nodes import Block, ModelIR
from synapse_jax.kv.pages import abstract_pages, layer_arrays
from synapse_jax.ops.dtypes import weight_dtype

FIGURES = {"flops": "flops", "transcendentals": "transcendentals", "bytes": "bytes accessed"}
"""Figures of a cost, and what XLA calls them."""

Costs = dict[str, float]


def cost_table(ir: ModelIR, lowered: LoweredEntry) -> list[dict[str, Any]]:
    """Where an entry's operations are, by XLA's analysis of the module before it is optimized.

    A layer is one function of the module, called once for each layer built alike; lowered alone it costs what
    it costs there. What is left of the whole is the embedding, the head and the scoring. XLA counts a loop's
    body once, whatever its turns: of attention that is one page, of `decode` one token, of scoring one block
    of rows. Layers that are a loop are counted as often as it turns. Bytes are those that every operation
    reads and writes by itself; fusion makes them fewer.

    Returns:
        Rows: each kind of layer, then the rest, then the whole. Figures are those of one layer; `count` of
        them add up, to float32's rounding in XLA. `weight_bytes` and `cache_bytes` are of its arguments.
    """
    whole, loop = _costs(lowered.lowered), ir.profile.layers == "scan"
    rows, rest = [], dict(whole)
    kinds: dict[Block, list[int]] = {}
    for index, block in enumerate(ir.layers if lowered.entry.name != "choose" else ()):
        kinds.setdefault(block, []).append(index)
    for block, layers in kinds.items():
        weights, rows_of, cache = _layer_arguments(ir, lowered.entry, block, layers[0])
        x_TD = Abstract((*rows_of.token_T.shape, ir.spec.width), jnp.float32)
        number = Abstract((), jnp.int32) if selects_pages(block) else None
        model = Model(ir, {}, entry_attention(ir, lowered.entry))
        alone = jax.jit(model.layer_function(block), keep_unused=True)
        costs = _costs(alone.lower(weights, x_TD, rows_of, cache, number))
        rows.append(_row(f"layers {ranges(layers)}", len(layers), costs, _bytes(weights), _bytes(cache)))
        counted = 1 if loop else len(layers)
        rest = {name: rest[name] - counted * value for name, value in costs.items()}
        whole = {name: whole[name] + (len(layers) - counted) * value for name, value in costs.items()}
    params, pages, _ = abstract_arguments(ir, lowered.entry)
    every = _row("the whole", 1, whole, _bytes(params), _bytes(pages))
    left = {name: every[name] - sum(r["count"] * r[name] for r in rows) for name in _ARRAYS}
    return [*rows, _row("the rest", 1, rest, **left), every]


def compiled_account(compiled: CompiledEntry) -> dict[str, Any]:
    """The same of the optimized module, and the memory that a call needs; None where a compiler is silent.

    Returns:
        `flops`, `transcendentals`, `bytes`; and in bytes `argument_bytes`, `output_bytes`, `alias_bytes` (of
        the output, what reuses a donated argument), `temporary_bytes`, `code_bytes`.
    """
    function: Any = compiled.function
    costs, memory = function.cost_analysis() or {}, function.memory_analysis()
    sizes = ("argument", "output", "alias", "temp", "generated_code")
    names = ("argument_bytes", "output_bytes", "alias_bytes", "temporary_bytes", "code_bytes")
    return {
        **{name: costs.get(what) for name, what in FIGURES.items()},
        **{
            name: getattr(memory, f"{size}_size_in_bytes", None)
            for name, size in zip(names, sizes, strict=True)
        },
    }


_ARRAYS = ("weight_bytes", "cache_bytes")


def _row(part: str, count: int, costs: Costs, weight_bytes: int, cache_bytes: int) -> dict[str, Any]:
    return {
        "part": part,
        "count": count,
        **costs,
        "weight_bytes": weight_bytes,
        "cache_bytes": cache_bytes,
    }


def _costs(lowered: Any) -> Costs:
    analysis: Mapping[str, float] = lowered.cost_analysis()
    return {name: float(analysis.get(what, 0.0)) for name, what in FIGURES.items()}


def _layer_arguments(ir: ModelIR, entry: Entry, block: Block, layer: int) -> tuple[Any, Any, Any]:
    """Weights, rows and cache of a layer, as shapes and types."""
    weights = {
        weight.name: Abstract(weight.shape, weight_dtype(weight.shape, ir.profile.precision))
        for node in block.nodes
        for weight in node.weights
    }
    # The batch of `logits` is nothing but rows, and one of one row is a turn of `decode`.
    rows = abstract_batch(ir, dataclasses.replace(entry, name="logits"))
    # In a loop a layer has its arrays for itself, as in a row of layers.
    profile = dataclasses.replace(ir.profile, layers="unrolled")
    pages = abstract_pages(ir.spec, profile, entry.capacity)
    places = layer_arrays(ir.spec, profile)[layer]
    return weights, rows, tuple(pages[place] for place in places)


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
