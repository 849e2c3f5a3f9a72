"""Checkpoints of a scoring run: a line for every chunk."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.evals.checkpoint_file import CheckpointFile
from synapse_jax.evals.score import ChunkScore


@dataclasses.dataclass(frozen=True)
class TraceEnd:
    """How far a trace goes that belongs to a checkpoint."""

    bytes: int = 0
    sha256: str = hashlib.sha256().hexdigest()
    """Of so many bytes."""


class Checkpoint(CheckpointFile):
    """The chunks of a scoring run that are done, and where their trace ends."""

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any], *, resume: bool):
        self.chunks: list[ChunkScore] = []
        """Chunks that are done, in order."""
        self.trace_end = TraceEnd()
        """Where the trace of these ends."""
        super().__init__(path, identity, resume=resume)

    def add(self, chunk: ChunkScore, trace_end: TraceEnd) -> None:
        """Puts a chunk on the disk.

        Raises:
            RunError: it cannot be written.
        """
        self.append({**dataclasses.asdict(chunk), "trace": dataclasses.asdict(trace_end)})
        self.chunks.append(chunk)
        self.trace_end = trace_end

    def read_line(self, value: dict[str, Any]) -> None:
        """Takes in a chunk."""
        trace_end = TraceEnd(**value.pop("trace"))
        chunk = ChunkScore(**value)
        if chunk.index != len(self.chunks):
            raise InputError(f"{self.shown}: chunk {chunk.index} is where chunk {len(self.chunks)} should be")
        self.chunks.append(chunk)
        self.trace_end = trace_end
