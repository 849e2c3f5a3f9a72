"""A session's compiled entries: those announced at load, and larger rungs of the same ones."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from synapse_jax.graph.compile import GRAPHS, CompiledEntry
from synapse_jax.graph.entry import Entry
from synapse_jax.graph.fingerprint import thread_count
from synapse_jax.graph.moves import prepare_growth
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.kv.pages import abstract_pages

GUARD = "SYNAPSE_LATE_COMPILES"
"""Environment variable: `raise` makes a late compilation an error."""

_guards = 0


class LateCompileError(RuntimeError):
    """An entry that was not announced at load was about to be compiled, and the guard is on."""


@contextlib.contextmanager
def late_compiles_raise() -> Iterator[None]:
    """Within the block no session compiles an entry that was not announced when it was made."""
    global _guards
    _guards += 1
    try:
        yield
    finally:
        _guards -= 1


class Entries:
    """Compiles entries and keeps them.

    What is ready at load is announced, at every rung of the capacity ladder: growth may compile it again, in
    the foreground or ahead of need. Any other entry is late.

    Args:
        ir: the model.
        device: where entries run.
        ready: compiled now, in threads; `finish` waits for them.
        log: told, a line each time, what compiles.
    """

    def __init__(self, ir: ModelIR, device: jax.Device, ready: Sequence[Entry], log: Callable[[str], None]):
        self._ir, self._device, self._log = ir, device, log
        self._compiled: dict[Entry, CompiledEntry] = {}
        self._announced = {_sort(entry) for entry in ready}
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: dict[int, Future] = {}
        self.compile_s = 0.0
        """Seconds that the session has waited for entries to compile."""
        self._starting = self._start(ready) if ready else {}

    @property
    def compiled(self) -> tuple[CompiledEntry, ...]:
        """Every entry compiled so far, in the order of their names and shapes."""
        return tuple(self._compiled[entry] for entry in sorted(self._compiled))

    def finish(self) -> None:
        """Waits for what was to be ready at load."""
        self._wait_for(self._starting)

    def get(self, entry: Entry) -> CompiledEntry:
        """The compiled entry; compiled now if it is not there.

        Raises:
            LateCompileError: it was not announced, and the guard is on.
        """
        if entry not in self._compiled:
            if _sort(entry) not in self._announced:
                if _guards or os.environ.get(GUARD) == "raise":
                    raise LateCompileError(f"{entry} was not announced when the session was made")
                self._announced.add(_sort(entry))
            self._wait_for(self._start([entry]))
        return self._compiled[entry]

    def look_ahead(self, held: int, capacity: int, larger: int) -> None:
        """Compiles the next rung in a thread, once, when the present one is three quarters full.

        Args:
            held: positions held.
            capacity: positions that the present pools hold.
            larger: those that the next ones will; the same where the pools cannot grow.
        """
        if 4 * held < 3 * capacity or larger <= capacity or larger in self._ahead:
            return
        # Only what has been of use at this rung: the entries of load may be meant for a first prompt.
        used = [entry for entry in self._compiled if entry.capacity == capacity]
        self._thread = self._thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile-ahead")
        self._ahead[larger] = self._thread.submit(self._compile_ahead, used, capacity, larger)

    def wait(self) -> None:
        """Waits for what is compiled ahead."""
        for future in self._ahead.values():
            future.result()

    def _compile_ahead(self, entries: Sequence[Entry], capacity: int, larger: int) -> None:
        rung = [Entry(e.name, e.rows, larger, e.sequences) for e in entries]
        self._log(f"compiling ahead {', '.join(map(str, rung))}")
        old, new = (abstract_pages(self._ir.spec, self._ir.profile, size) for size in (capacity, larger))
        prepare_growth(old, new, self._device)
        for entry in rung:
            GRAPHS.compile(self._ir, entry, self._device)

    def _start(self, entries: Sequence[Entry]) -> dict[Entry, Future]:
        """Compiles entries in threads: the compiler leaves the interpreter free."""
        self._log(f"compiling {', '.join(map(str, entries))}")
        pool = ThreadPoolExecutor(max_workers=min(thread_count(), len(entries)))
        started = {entry: pool.submit(GRAPHS.compile, self._ir, entry, self._device) for entry in entries}
        pool.shutdown(wait=False)
        return started

    def _wait_for(self, started: dict[Entry, Future]) -> None:
        before = time.perf_counter()
        self._compiled.update({entry: future.result() for entry, future in started.items()})
        self.compile_s += time.perf_counter() - before


def _sort(entry: Entry) -> tuple[str, int, int]:
    """What an entry is at any capacity."""
    return entry.name, entry.rows, entry.sequences
