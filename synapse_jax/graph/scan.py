"""Layers as a loop: one layer in the module, however many the model has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.graph.entry import Rows
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.kv.pages import Pages, page_kinds

Layer = Callable[..., tuple[jax.Array, tuple[jax.Array, ...]]]
"""(weights, x [T, D], rows, the layer's cache, its index) → (x [T, D], its new cache)."""


def scan_layers(
    ir: ModelIR, layer: Layer, weights: Mapping[str, jax.Array], x_TD: jax.Array, rows: Rows, pages: Pages
) -> tuple[jax.Array, Pages]:
    """Evaluates all layers, which are of one kind.

    The pages are carried from turn to turn, so that they are updated in place: as a scanned input and output
    they would be a second cache. All layers' pools are one pool to a turn, [L·P, C, …], of which a layer has
    the pages from P times its index on; its rows name those.

    Args:
        ir: the model.
        layer: evaluates one layer.
        weights: stacked weights [L, …], by their names within a layer.
        x_TD: the residual stream before the first layer.
        rows: the rows of the step, by pages of one layer.
        pages: stacked arrays [L, …], `kv.pages`.

    Returns:
        The residual stream after the last layer, and the new pages.
    """
    kinds = page_kinds(ir.spec, ir.profile)
    of_kind = {kind: array.shape[1] for kind, array in zip(kinds, pages, strict=True) if kind is not None}
    pages_Y = jnp.array([of_kind[kind] for kind in range(len(of_kind))], jnp.int32)

    def turn(carry: tuple[jax.Array, Pages], of_layer: tuple[Any, jax.Array]):
        x_TD, stacks = carry
        own, index = of_layer
        cache = tuple(
            lax.dynamic_index_in_dim(stack, index, keepdims=False) if kind is None else stack
            for kind, stack in zip(kinds, stacks, strict=True)
        )
        x_TD, cache = layer(own, x_TD, _rows_of(rows, pages_Y, index, ir.spec.layers), cache, index)
        new = tuple(
            lax.dynamic_update_index_in_dim(stack, array, index, 0) if kind is None else array
            for kind, stack, array in zip(kinds, stacks, cache, strict=True)
        )
        return (x_TD, new), None

    stacks = tuple(
        array if kind is None else array.reshape(-1, *array.shape[2:])
        for kind, array in zip(kinds, pages, strict=True)
    )
    layers = jnp.arange(ir.spec.layers, dtype=jnp.int32)
    (x_TD, stacks), _ = lax.scan(turn, (x_TD, stacks), (dict(weights), layers))
    return x_TD, tuple(stack.reshape(array.shape) for stack, array in zip(stacks, pages, strict=True))


def _rows_of(rows: Rows, pages_Y: jax.Array, index: jax.Array, layers: int) -> Rows:
    """The rows with the pages of a layer in the pool of all; no page stays none."""
    pages_Y1 = pages_Y[:, None]
    page_YT = jnp.where(rows.page_YT < pages_Y1, rows.page_YT + index * pages_Y1, layers * pages_Y1)
    table_YBM = rows.page_table_YBM + index * pages_Y[:, None, None]
    return rows._replace(page_YT=page_YT, page_table_YBM=table_YBM)
