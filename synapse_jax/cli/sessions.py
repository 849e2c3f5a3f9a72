"""A session for one command's work, and how long the work took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from absl import flags

from synapse_jax.cli.progress import Progress, say
from synapse_jax.io.model_file import ModelFile
from synapse_jax.spec.runtime import RuntimeProfile

if TYPE_CHECKING:  # bad input is refused before jax starts
    from synapse_jax.runtime.session import Session

Result = TypeVar("Result")


def open_session(
    values: flags.FlagValues,
    model: ModelFile,
    profile: RuntimeProfile,
    ready: Sequence[tuple[str, int]],
    positions: int,
) -> Session:
    """A session that compiles what the command will use, with room for `positions`."""
    from synapse_jax.runtime.session import Session

    model.sha256()  # of the file as it is now, before its weights are read
    progress = Progress(values.progress, "weights", "tensors")
    return Session(
        model, profile, ready=ready, positions=positions, log=say(values.progress), progress=progress
    )


def kv_memory(session: Session) -> str:
    """The KV cache in words: what is allocated, and what of it a later token can still see."""
    cache = session.cache
    return (
        f"KV {cache.live_bytes / 1e6:.1f} MB of {cache.allocated_bytes / 1e6:.1f}, "
        f"{cache.held} positions of {cache.capacity}"
    )


def timed(work: Callable[[], Result], *sessions: Session) -> tuple[Result, float]:
    """What `work` returns, and its seconds without those that its sessions spent compiling."""

    def compiled() -> float:
        return sum(session.compile_s for session in sessions)

    before, started = compiled(), time.perf_counter()
    result = work()
    return result, time.perf_counter() - started - (compiled() - before)
