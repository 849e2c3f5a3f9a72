"""Moving pages on the device: new ones, into larger pools, and from one page to another.

Pools are moved one by one: equal ones share a graph, which is small, so that growing and copying compile in a
moment whatever the model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from synapse_jax.graph.compile import GRAPHS
from synapse_jax.graph.fingerprint import executable_identity, move_identity
from synapse_jax.kv.pages import Pages, copy_pages, grown
from synapse_jax.kv.table import Copy

COPIES = 16
"""X: pages of a kind that one call copies."""

Shapes = tuple[jax.ShapeDtypeStruct, ...]


def grow_pages(pages: Pages, shapes: Shapes, device: jax.Device) -> Pages:
    """The pages in pools of the given shapes, each at least as large. The old ones stay as they are."""
    new = [
        pool if pool.shape == shape.shape else _grow(_abstract(pool), shape, device)(pool)
        for pool, shape in zip(pages, shapes, strict=True)
    ]
    return jax.block_until_ready(tuple(new))


def prepare_growth(old: Shapes, new: Shapes, device: jax.Device) -> None:
    """Compiles what `grow_pages` will need."""
    for before, after in zip(old, new, strict=True):
        if before.shape != after.shape:
            _grow(before, after, device)


def copy_between_pages(
    pages: Pages, kinds: Sequence[int | None], copies: Sequence[Sequence[Copy]], device: jax.Device
) -> Pages:
    """The pages after copies that do not depend on each other; those that change are donated.

    Args:
        pages: pools and bounds.
        kinds: the kind of each (`kv.pages.page_kinds`).
        copies: (source, target) pages of each kind.
        device: where the pages are.
    """
    moved = list(pages)
    for place, kind in enumerate(kinds):
        pairs = () if kind is None else copies[kind]
        for start in range(0, len(pairs), COPIES):
            # A page beyond the last one is written nowhere.
            source_X, target_X = np.zeros((2, COPIES), np.int32)
            target_X += max(moved[place].shape)
            for index, (source, target) in enumerate(pairs[start : start + COPIES]):
                source_X[index], target_X[index] = source, target
            moved[place] = _copy(_abstract(moved[place]), device)(moved[place], source_X, target_X)
    return tuple(moved)


@functools.lru_cache(maxsize=256)
def _grow(old: jax.ShapeDtypeStruct, new: jax.ShapeDtypeStruct, device: jax.Device) -> Any:
    def grow(pool):
        return grown(pool, new.shape)

    return _compiled(grow, (old,), device)


@functools.lru_cache(maxsize=256)
def _copy(pool: jax.ShapeDtypeStruct, device: jax.Device) -> Any:
    places = jax.ShapeDtypeStruct((COPIES,), jnp.int32)
    return _compiled(copy_pages, (pool, places, places), device, donated=(0,))


def _compiled(
    function: Callable, arguments: Shapes, device: jax.Device, donated: tuple[int, ...] = ()
) -> Any:
    with jax.default_device(device):
        lowered = jax.jit(function, donate_argnums=donated).lower(*arguments)
    program = move_identity(function.__name__, lowered.as_text())
    return GRAPHS.get(lowered, executable_identity(program, device), device).function


def _abstract(pool: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(pool.shape, pool.dtype)
