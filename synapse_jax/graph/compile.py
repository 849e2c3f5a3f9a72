"""Lowering and ahead-of-time compilation: the only code that traces or compiles."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax

from synapse_jax.graph.entry import Entry, abstract_arguments
from synapse_jax.graph.fingerprint import Identity, executable_identity, program_identity
from synapse_jax.graph.lower import entry_function
from synapse_jax.graph.store import GraphStore, graph_folder
from synapse_jax.ir.nodes import ModelIR

PAGES_ARGUMENT = 1
"""Position of the pages among an entry's arguments: they are donated."""


@dataclasses.dataclass(frozen=True)
class LoweredEntry:
    """An entry as a StableHLO module with its program identity."""

    entry: Entry
    program: Identity
    stablehlo: str
    lowered: Any = dataclasses.field(repr=False, compare=False)
    lower_s: float = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class CompiledEntry:
    """An entry that runs on a device. Called with other shapes than its own it raises TypeError."""

    entry: Entry
    program: Identity
    executable: Identity
    function: Callable = dataclasses.field(repr=False, compare=False)
    cache: str = dataclasses.field(compare=False)
    """Where it came from: `hit`, the graph cache on disk; `miss`, it was compiled; `off`, so it was, and
    there is no cache."""
    compile_s: float = dataclasses.field(compare=False)
    """Seconds that compiling it took, or reading it."""
    lower_s: float = dataclasses.field(compare=False)
    """Seconds that lowering it took."""

    def __call__(self, params, pages, batch):
        """(out, pages); the pages passed in are donated and may not be used again."""
        return self.function(params, pages, batch)

    def summary(self) -> dict[str, Any]:
        """The part of a record that names this graph."""
        digests = {"program": self.program.digest, "executable": self.executable.digest}
        return {**self.entry.summary(), **digests, "parts": dict(self.executable.parts)}

    def cost(self) -> dict[str, Any]:
        """The part of a record that says what getting this graph took."""
        costs = {"cache": self.cache, "compile_s": self.compile_s, "lower_s": self.lower_s}
        return {**self.entry.summary(), **costs}

    @property
    def temporary_bytes(self) -> int:
        """Memory that a call needs beside its arguments and results, by the compiler's own account."""
        return self.function.memory_analysis().temp_size_in_bytes  # type: ignore[attr-defined]


def trace(ir: ModelIR, entry: Entry) -> Any:
    """An entry traced for abstract arguments (`jax.stages.Traced`), to be lowered for any platform."""
    function = jax.jit(entry_function(ir, entry), donate_argnums=PAGES_ARGUMENT, keep_unused=True)
    return function.trace(*abstract_arguments(ir, entry))


def lower(ir: ModelIR, entry: Entry) -> LoweredEntry:
    """Traces an entry for abstract arguments; needs no weights and no device memory."""
    started = time.perf_counter()
    lowered = trace(ir, entry).lower()
    text = lowered.as_text()
    program = program_identity(ir, entry, text)
    return LoweredEntry(entry, program, text, lowered, time.perf_counter() - started)


@functools.lru_cache(maxsize=64)
def lower_on(ir: ModelIR, entry: Entry, device: jax.Device) -> LoweredEntry:
    """As `lower`, for a given device, and remembered."""
    with jax.default_device(device):
        return lower(ir, entry)


@dataclasses.dataclass(frozen=True)
class Graph:
    """An executable of this process."""

    function: Any
    """Called with the arguments that it was compiled for."""
    cache: str
    """As `CompiledEntry.cache`."""
    seconds: float
    """Compiling it, or reading it."""


class GraphCache:
    """Executables by identity. One a process is enough: equal graphs compile once. Threads may use it.

    Behind it is the cache on disk (`graph.store`).
    """

    def __init__(self):
        self._graphs: dict[str, Graph] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._here = threading.local()
        self.compilations = 0
        """Compilations so far: a hit does not count."""

    @property
    def waited_s(self) -> float:
        """Seconds that the calling thread has waited in `get` so far."""
        return getattr(self._here, "waited_s", 0.0)

    def clear(self) -> None:
        """Forgets every graph of the process; those that a session holds stay with it."""
        with self._lock:
            self._graphs.clear()
            self._turns.clear()

    def holds(self, executable: Identity, device: jax.Device) -> bool:
        """Whether this process has compiled or read a graph for a device."""
        with self._lock:
            return _key(executable, device) in self._graphs

    def is_kept(self, executable: Identity, device: jax.Device) -> bool:
        """Whether the cache on disk has a file of a graph."""
        folder = graph_folder()
        return folder is not None and GraphStore(folder).holds(executable, device)

    def compile(self, ir: ModelIR, entry: Entry, device: jax.Device) -> CompiledEntry:
        """The compiled entry of a model on a device, from a cache or compiled now."""
        lowered = lower_on(ir, entry, device)
        executable = executable_identity(lowered.program, device)
        graph = self.get(lowered.lowered, executable, device)
        return CompiledEntry(
            entry,
            lowered.program,
            executable,
            graph.function,
            graph.cache,
            graph.seconds,
            lowered.lower_s,
        )

    def get(self, lowered: jax.stages.Lowered, executable: Identity, device: jax.Device) -> Graph:
        """The executable of a lowered module, from a cache or compiled now.

        Args:
            lowered: the module.
            executable: its identity.
            device: the device that it was lowered for.
        """
        key, started = _key(executable, device), time.perf_counter()
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            if key not in self._graphs:
                self._graphs[key] = self._read_or_compile(lowered, executable, device)
        self._here.waited_s = self.waited_s + time.perf_counter() - started
        return self._graphs[key]

    def _read_or_compile(
        self, lowered: jax.stages.Lowered, executable: Identity, device: jax.Device
    ) -> Graph:
        started, folder = time.perf_counter(), graph_folder()
        store = None if folder is None else GraphStore(folder)
        kept = None if store is None else store.load(executable, lowered, device)
        if kept is not None:
            return Graph(kept, "hit", time.perf_counter() - started)
        function = lowered.compile()
        with self._lock:
            self.compilations += 1
        seconds = time.perf_counter() - started
        if store is not None:
            store.save(executable, function, device)
        _trim_memory()
        return Graph(function, "off" if store is None else "miss", seconds)


def _key(executable: Identity, device: jax.Device) -> str:
    return f"{executable.digest} {device.id}"


def _trim_memory() -> None:
    """Gives freed memory back where the C library can: the compiler leaves over 100 MB behind."""
    if sys.platform == "linux" and hasattr(ctypes.pythonapi, "malloc_trim"):
        ctypes.pythonapi.malloc_trim(0)


GRAPHS = GraphCache()
"""The process's compiled entries."""
