"""Moving pages on the device: into larger pools, and from one page to another."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from synapse_jax.kv.pages import Pages, copy_pages, grown
from synapse_jax.kv.table import Copy

COPIES = 16
"""X: pages of a kind that one call copies."""

Shapes = tuple[jax.ShapeDtypeStruct, ...]


def grow_pages(pages: Pages, shapes: Shapes, device: jax.Device) -> Pages:
    """The pages in pools of the given shapes, each at least as large. The old ones stay as they are."""
    small = [index for index, pool in enumerate(pages) if pool.shape != shapes[index].shape]
    old, new = tuple(_abstract(pages[i]) for i in small), tuple(shapes[i] for i in small)
    out = list(pages)
    if small:
        for index, pool in zip(small, _grow(old, new, device)(*(pages[i] for i in small)), strict=True):
            out[index] = pool
    return jax.block_until_ready(tuple(out))


def copy_between_pages(
    pages: Pages, kinds: Sequence[int | None], copies: Sequence[Sequence[Copy]], device: jax.Device
) -> Pages:
    """The pages after copies that do not depend on each other; the pages passed in are donated.

    Args:
        pages: pools and bounds.
        kinds: the kind of each (`kv.pages.page_kinds`).
        copies: (source, target) pages of each kind.
        device: where the pages are.
    """
    move = _copy(tuple(map(_abstract, pages)), tuple(kinds), len(copies), device)
    for start in range(0, max(map(len, copies)), COPIES):
        source_YX, target_YX = np.zeros((2, len(copies), COPIES), np.int32)
        target_YX += max(pool.shape[0] for pool in pages)
        for kind, pairs in enumerate(copies):
            for place, (source, target) in enumerate(pairs[start : start + COPIES]):
                source_YX[kind, place], target_YX[kind, place] = source, target
        pages = move(pages, source_YX, target_YX)
    return pages


@functools.lru_cache(maxsize=64)
def _grow(old: Shapes, new: Shapes, device: jax.Device) -> Any:
    def grow(*pools):
        return tuple(grown(pool, shape.shape[0]) for pool, shape in zip(pools, new, strict=True))

    with jax.default_device(device):
        return jax.jit(grow).lower(*old).compile()


@functools.lru_cache(maxsize=64)
def _copy(pages: Shapes, kinds: tuple[int | None, ...], count: int, device: jax.Device) -> Any:
    def copy(pools, source_YX, target_YX):
        return tuple(
            pool if kind is None else copy_pages(pool, source_YX[kind], target_YX[kind])
            for pool, kind in zip(pools, kinds, strict=True)
        )

    places = jax.ShapeDtypeStruct((count, COPIES), jnp.int32)
    with jax.default_device(device):
        return jax.jit(copy, donate_argnums=0).lower(pages, places, places).compile()


def _abstract(pool: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(pool.shape, pool.dtype)
