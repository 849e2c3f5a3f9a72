"""An entry as portable StableHLO (`jax.export`), and back: a graph without the code that made it."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax import export

from synapse_jax.errors import InputError
from synapse_jax.graph.compile import PAGES_ARGUMENT
from synapse_jax.graph.entry import Entry, abstract_arguments
from synapse_jax.graph.lower import entry_function
from synapse_jax.ir.nodes import ModelIR

_LOCATIONS = threading.Lock()


def export_entry(ir: ModelIR, entry: Entry, platforms: Sequence[str]) -> bytes:
    """An entry as `jax.export` serializes it.

    The exported function takes the arrays of `describe.argument_list` in their order and returns those of the
    entry's results, then the pages: plain arrays, so that whoever loads it needs jax alone. Source locations
    are left out: they would name this machine's folders, and equal graphs would be different bytes in every
    place that they are made in.

    Args:
        ir: the model.
        entry: the entry.
        platforms: names that jax lowers for, as in `portable.PLATFORMS`.

    Raises:
        InputError: jax cannot lower for a platform, or the package that serializes is missing.
    """
    function, (leaves, tree) = entry_function(ir, entry), jax.tree.flatten(abstract_arguments(ir, entry))

    def flat(*arrays: jax.Array) -> list[jax.Array]:
        return jax.tree.leaves(function(*jax.tree.unflatten(tree, arrays)))

    flat.__name__ = entry.name
    with _without_locations(), warnings.catch_warnings():
        # jax donates nothing on METAL, and says so.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        jitted = jax.jit(flat, donate_argnums=_places(ir, entry), keep_unused=True)
        try:
            return bytes(export.export(jitted, platforms=list(platforms))(*leaves).serialize())
        except ImportError:
            raise InputError("graph export needs the package flatbuffers, which is not installed") from None


def load_exported(data: bytes, source: str) -> export.Exported:
    """What `export_entry` made.

    Raises:
        InputError: the bytes are something else, or of a version that this jax does not read.
    """
    try:
        exported = export.deserialize(bytearray(data))
    except ImportError:
        raise InputError(
            f"{source}: to read it needs the package flatbuffers, which is not installed"
        ) from None
    except Exception as error:  # flatbuffers reads whatever it is given, and fails anywhere
        raise InputError(f"{source}: jax {jax.__version__} cannot read it: {error}") from None
    return exported


@dataclasses.dataclass(frozen=True)
class ExportedEntry:
    """An exported entry, compiled for a device. Called as a compiled one: (params, pages, batch)."""

    entry: Entry
    function: Callable[..., Any] = dataclasses.field(repr=False)
    """Compiled; takes and returns plain arrays."""

    def __call__(self, params: Any, pages: Any, batch: Any) -> tuple[Any, Any]:
        """(out, pages); the pages passed in are donated and may not be used again."""
        results = self.function(*jax.tree.leaves((params, pages, batch)))
        out, pages = results[: -len(pages)], results[-len(pages) :]
        return tuple(out), tuple(pages)


def compile_exported(
    exported: export.Exported, ir: ModelIR, entry: Entry, device: jax.Device, source: str
) -> ExportedEntry:
    """Compiles an exported entry for a device.

    Raises:
        InputError: it takes other arrays than the entry of this model, or is of another platform.
    """
    expected = [(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(abstract_arguments(ir, entry))]
    found = [(aval.shape, str(aval.dtype)) for aval in exported.in_avals]
    if found != expected:
        raise InputError(f"{source}: takes other arrays than {entry} of this model")
    platforms = {"gpu": ("cuda", "rocm")}.get(device.platform, (device.platform,))
    if not set(platforms) & set(exported.platforms):
        raise InputError(
            f"{source}: is lowered for {', '.join(exported.platforms)}, the device is {device.platform}"
        )
    with jax.default_device(device):
        jitted = jax.jit(exported.call, donate_argnums=_places(ir, entry), keep_unused=True)
        return ExportedEntry(entry, jitted.lower(*exported.in_avals).compile())


def _places(ir: ModelIR, entry: Entry) -> tuple[int, ...]:
    """Where the pages are among the arrays: they are donated."""
    counts = [len(jax.tree.leaves(tree)) for tree in abstract_arguments(ir, entry)]
    first = sum(counts[:PAGES_ARGUMENT])
    return tuple(range(first, first + counts[PAGES_ARGUMENT]))


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Lowers without the lines of source that each operation comes from."""
    name = "jax_traceback_in_locations_limit"
    with _LOCATIONS:
        before = getattr(jax.config, name)
        jax.config.update(name, 0)
        try:
            yield
        finally:
            jax.config.update(name, before)
