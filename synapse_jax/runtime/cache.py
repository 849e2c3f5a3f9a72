"""A session's KV cache: the pages value, who holds which page, and how far it is filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from synapse_jax.dims import capacity_rung
from synapse_jax.kv.allocator import PageAllocator
from synapse_jax.kv.pages import Pages, abstract_pages
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile


class Cache:
    """Pages of one sequence, from the first rung of the capacity ladder up.

    A step donates the pages. When it fails they are gone: the cache then holds nothing, says so, and
    makes new pages when it is next used.
    """

    def __init__(self, spec: ModelSpec, profile: RuntimeProfile, device: jax.Device, positions: int = 1):
        assert profile.context is not None
        self._spec, self._profile, self._device, self._context = spec, profile, device, profile.context
        self._capacity = capacity_rung(positions, self._context, profile.page_size)
        self._pages: Pages | None = None
        self._held = 0
        self._allocator = PageAllocator(self._capacity // profile.page_size)
        self._table = tuple(self._allocator.take(self._allocator.pages))

    @property
    def capacity(self) -> int:
        """Positions that the allocated pages hold."""
        return self._capacity

    @property
    def held(self) -> int:
        """Positions, from 0 up, whose keys and values are valid."""
        return self._held

    @property
    def page_table(self) -> tuple[int, ...]:
        """The sequence's pages in order."""
        return self._table

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the pools, 0 before the first step."""
        return 0 if self._pages is None else sum(array.nbytes for array in jax.tree.leaves(self._pages))

    @property
    def live_bytes(self) -> int:
        """Bytes of the positions held."""
        return self.allocated_bytes * self._held // self._capacity

    def begin(self, positions: int) -> None:
        """Starts an evaluation of up to `positions` positions from 0; earlier contents are forgotten."""
        self._held = 0
        self._reserve(positions)

    def advance(self, held: int) -> None:
        """Says that a step has finished and positions 0 … held − 1 are valid."""
        self._held = held

    def drop(self) -> None:
        """Forgets the contents and frees the pages; the next step makes new ones."""
        self._pages, self._held = None, 0

    def run(self, step: Callable[[Pages], tuple[Any, Pages]]) -> Any:
        """Runs a step on the pages and waits for it, so that a failure is known here."""
        pages, self._pages = self._pages, None
        held, self._held = self._held, 0
        out, new_pages = step(self._new_pages(self._capacity) if pages is None else pages)
        out = jax.block_until_ready(out)
        self._pages, self._held = new_pages, held
        return out

    def _reserve(self, positions: int) -> None:
        """Takes the rung that holds `positions`. Nothing is held now, so there is nothing to copy."""
        capacity = capacity_rung(positions, self._context, self._profile.page_size)
        if capacity > self._capacity:
            self._pages = None
            self._allocator.grow(capacity // self._profile.page_size)
            self._table += tuple(self._allocator.take(self._allocator.free))
            self._capacity = capacity

    def _new_pages(self, capacity: int) -> Pages:
        """Zeroed pools: masked cells are multiplied by zero, and zero times an old NaN would be NaN."""
        return tuple(
            jnp.zeros(pool.shape, pool.dtype, device=self._device)
            for pool in abstract_pages(self._spec, self._profile, capacity)
        )
