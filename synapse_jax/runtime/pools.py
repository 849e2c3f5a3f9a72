"""The pages value of a session: it is passed into every step, comes back from it, and grows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from synapse_jax.errors import InputError, RunError
from synapse_jax.graph.compile import GRAPHS
from synapse_jax.graph.moves import copy_between_pages, grow_pages
from synapse_jax.kv.pages import Pages, abstract_pages, layer_arrays, page_kinds
from synapse_jax.kv.table import Copy
from synapse_jax.runtime.memory import available_bytes
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import RuntimeProfile


class Pools:
    """Pools of pages on a device.

    A step donates the pages. When it fails they may be gone, which `are_there` then says.

    Args:
        spec: the model.
        profile: resolved.
        device: where the pages are.
        capacity: positions in the pools of layers that see all keys.
        log: told how the pools grow.
    """

    def __init__(
        self,
        spec: ModelSpec,
        profile: RuntimeProfile,
        device: jax.Device,
        capacity: int,
        log: Callable[[str], None],
    ):
        self._spec, self._profile, self._device, self._log = spec, profile, device, log
        self._pages: Pages | None = None
        self.capacity = capacity
        """Positions in the pools of layers that see all keys."""
        self.compile_s = 0.0
        """Seconds spent compiling growths and copies."""

    @property
    def are_there(self) -> bool:
        """Whether there are pages that may hold something."""
        return self._pages is not None

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the pools and bounds, 0 before the first step."""
        return _bytes(self._pages or ())

    @property
    def position_bytes(self) -> int:
        """Bytes of one position in one layer."""
        shapes = abstract_pages(self._spec, self._profile, self._profile.page_size)
        cells = self._profile.page_size * (self._spec.layers if self._profile.layers == "scan" else 1)
        return _bytes([shapes[0]]) // cells

    @property
    def sum_bytes(self) -> int:
        """Bytes of the sums of blocks that are filling."""
        shapes = abstract_pages(self._spec, self._profile, self._profile.page_size)
        kinds = page_kinds(self._spec, self._profile)
        return _bytes([shape for shape, kind in zip(shapes, kinds, strict=True) if kind is None])

    def adopt(self, other: Pools) -> None:
        """A copy of other pools.

        Raises:
            InputError: they are of another shape.
            RunError: there is no memory for it.
        """
        pools = (self, other)
        shapes = [abstract_pages(pool._spec, pool._profile, other.capacity) for pool in pools]
        owners = [layer_arrays(pool._spec, pool._profile) for pool in pools]
        if shapes[0] != shapes[1] or owners[0] != owners[1]:
            raise InputError(
                f"attention {self._profile.attention} keeps other pages than {other._profile.attention}"
            )
        self._check_memory(other.allocated_bytes, "there is no room for a copy of the KV cache")
        self.capacity = other.capacity
        self._pages = None if other._pages is None else tuple(map(jnp.copy, other._pages))

    def drop(self) -> None:
        """Frees the pages; the next step makes new ones."""
        self._pages = None

    def run(self, step: Callable[[Pages], tuple[Any, Pages]]) -> Any:
        """Runs a step on the pages and waits for it, so that a failure is known here.

        When it fails before the pages were donated, or is interrupted while the device works, they are kept.
        """
        if self._pages is None:
            self._pages = self._new_pages(self.capacity)
        try:
            out, self._pages = step(self._pages)
            return jax.block_until_ready(out)
        except BaseException:
            if not _are_whole(self._pages):
                self.drop()
            raise

    def copy(self, copies: Sequence[Sequence[Copy]]) -> None:
        """Copies pages, (source, target) by kind of layer."""
        if any(copies):
            kinds = page_kinds(self._spec, self._profile)
            with self._timed():
                self.run(lambda pages: ((), copy_between_pages(pages, kinds, copies, self._device)))

    def grow(self, capacity: int) -> None:
        """Larger pools with the same contents, if there are any.

        Both exist at the same time, so memory is checked first.

        Raises:
            RunError: there is no memory for it; the old pools stay as they are.
        """
        self._pages = self._new_pages(capacity) if self._pages is None else self._grown(self._pages, capacity)
        self.capacity = capacity

    def _grown(self, pages: Pages, capacity: int) -> Pages:
        shapes = abstract_pages(self._spec, self._profile, capacity)
        added = _bytes([new for new, old in zip(shapes, pages, strict=True) if new.shape != old.shape])
        what = f"the KV cache cannot grow from {self.capacity} to {capacity} positions"
        self._check_memory(added, f"{what} beside the {_megabytes(_bytes(pages))} that it has")
        try:
            with self._timed():
                new = grow_pages(pages, shapes, self._device)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            raise RunError(f"{what}, {_megabytes(added)}: {error}") from error
        self._log(
            f"the KV cache grew from {self.capacity} to {capacity} positions, {_megabytes(_bytes(new))}"
        )
        return new

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Counts what the block compiles."""
        before = GRAPHS.waited_s
        try:
            yield
        finally:
            self.compile_s += GRAPHS.waited_s - before

    def _new_pages(self, capacity: int) -> Pages:
        """Zeroed pools: masked cells are multiplied by zero, and zero times an old NaN would be NaN."""
        shapes = abstract_pages(self._spec, self._profile, capacity)
        what = f"there is no room for a KV cache of {capacity} positions"
        self._check_memory(_bytes(shapes), what)
        try:
            return tuple(jnp.zeros(pool.shape, pool.dtype, device=self._device) for pool in shapes)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            raise RunError(f"{what}, {_megabytes(_bytes(shapes))}: {error}") from error

    def _check_memory(self, needed: int, what: str) -> None:
        available = available_bytes(self._device)
        if available is not None and needed > available:
            raise RunError(f"{what}: {_megabytes(needed)} needed, {_megabytes(available)} available")


def _are_whole(pages: Pages | None) -> bool:
    """Whether pages were neither donated nor are the result of a step that failed."""
    if pages is None or any(pool.is_deleted() for pool in pages):
        return False
    try:
        jax.block_until_ready(pages)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _bytes(pools: Sequence[Any]) -> int:
    return sum(pool.size * pool.dtype.itemsize for pool in pools)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
