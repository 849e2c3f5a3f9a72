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
    compile_s: float = dataclasses.field(compare=False)

    def __call__(self, params, pages, batch):
        """(out, pages); the pages passed in are donated and may not be used again."""
        return self.function(params, pages, batch)

    def summary(self) -> dict[str, Any]:
        """The part of a record that names this graph."""
        digests = {"program": self.program.digest, "executable": self.executable.digest}
        return {**self.entry.summary(), **digests, "parts": dict(self.executable.parts)}

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


class GraphCache:
    """Compiled entries by executable identity. One a process is enough: equal graphs compile once."""

    def __init__(self):
        self._compiled: dict[str, CompiledEntry] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self.compilations = 0
        """Compilations so far: a hit does not count."""

    def holds(self, executable: Identity, device: jax.Device) -> bool:
        """Whether a graph is compiled for a device."""
        with self._lock:
            return _key(executable, device) in self._compiled

    def compile(self, ir: ModelIR, entry: Entry, device: jax.Device) -> CompiledEntry:
        """The compiled entry of a model on a device, from the cache or compiled now. Threads may call it."""
        lowered = lower_on(ir, entry, device)
        executable = executable_identity(lowered.program, device)
        key = _key(executable, device)
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            if key not in self._compiled:
                self._compiled[key] = self._compile(lowered, executable)
            return self._compiled[key]

    def _compile(self, lowered: LoweredEntry, executable: Identity) -> CompiledEntry:
        started = time.perf_counter()
        function = lowered.lowered.compile()
        _trim_memory()
        with self._lock:
            self.compilations += 1
        seconds = time.perf_counter() - started
        return CompiledEntry(lowered.entry, lowered.program, executable, function, seconds)


def _key(executable: Identity, device: jax.Device) -> str:
    return f"{executable.digest} {device.id}"


def _trim_memory() -> None:
    """Gives freed memory back where the C library can: the compiler leaves over 100 MB behind."""
    if sys.platform == "linux" and hasattr(ctypes.pythonapi, "malloc_trim"):
        ctypes.pythonapi.malloc_trim(0)


GRAPHS = GraphCache()
"""The process's compiled entries."""
