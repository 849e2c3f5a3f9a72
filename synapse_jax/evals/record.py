"""The record of a run: where its numbers come from."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from synapse_jax.io.model_file import ModelFile
from synapse_jax.spec.digest import sha256_tokens
from synapse_jax.spec.rope import RopeProfile

if TYPE_CHECKING:  # records of commands that touch no device are made without jax
    import jax

    from synapse_jax.runtime.session import Session
    from synapse_jax.spec.runtime import RuntimeProfile

SCHEMA = "synapse.record/1"


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds of a run."""

    load_s: float
    """Reading, converting and placing the weights."""
    compile_s: float
    """Compiling, late entries included."""
    eval_s: float
    """Evaluation alone."""
    tokens: int
    """Tokens that the evaluation took."""
    resumed_chunks: int | None = None
    """Chunks that an earlier run had scored; None where nothing can be resumed."""

    def summary(self) -> dict[str, Any]:
        """The part of a record; the speed is null where no time passed."""
        speed = self.tokens / self.eval_s if self.eval_s > 0 else None
        return {
            "load_s": self.load_s,
            "compile_s": self.compile_s,
            "eval_s": self.eval_s,
            "tokens_per_second": speed,
            "resumed_chunks": self.resumed_chunks,
        }


def build_record(
    command: str,
    *,
    result: Any,
    arguments: Mapping[str, Any] | None = None,
    model: ModelFile | None = None,
    session: Session | None = None,
    profile: RuntimeProfile | None = None,
    device: jax.Device | None = None,
    ids: Sequence[int] | None = None,
    evaluated: Sequence[int] | np.ndarray | None = None,
    timings: Timings | None = None,
) -> dict[str, Any]:
    """A record; what a command has no value for is None.

    Args:
        command: the command's name.
        result: the command's own part.
        arguments: the flags that were given, enough to run the command again.
        model: the file.
        session: the session that ran it.
        profile: the resolved profile where there is no session.
        device: the device where there is no session.
        ids: the tokens that were given.
        evaluated: the tokens that were evaluated.
        timings: of the run.
    """
    if session is not None:
        profile, device = session.profile, session.device
    return {
        "schema": SCHEMA,
        "command": command,
        "arguments": None if arguments is None else dict(arguments),
        "model": None if model is None else _model(model),
        "runtime": None if profile is None else runtime_summary(profile),
        "fingerprints": None if session is None else _fingerprints(session),
        "tokens": None if ids is None else tokens_summary(ids, evaluated),
        "device": None if device is None else _device(device),
        "versions": versions_summary(),
        "timings": None if timings is None else {**timings.summary(), "graphs": _graphs(session)},
        "memory": _memory(session),
        "result": result,
    }


def record_json(record: dict[str, Any]) -> str:
    """The record as one line of JSON, always valid UTF-8.

    A path may hold bytes that are not: they are surrogates in Python and become JSON's own escapes.

    Raises:
        ValueError: a figure is NaN or infinite.
    """
    line = json.dumps(record, allow_nan=False, ensure_ascii=False)
    return line.encode("utf-8", "backslashreplace").decode("utf-8")


def runtime_summary(profile: RuntimeProfile) -> dict[str, Any]:
    """Every field of a resolved profile."""
    fields = {field.name: getattr(profile, field.name) for field in dataclasses.fields(profile)}
    assert isinstance(profile.rope, RopeProfile)
    return {**fields, "rope": profile.rope.summary()}


def peak_rss_bytes() -> int | None:
    """Most memory that the process has had resident, or None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _model(model: ModelFile) -> dict[str, Any]:
    return {"name": model.name, "path": str(model.path), "sha256": model.sha256(), "arch": model.arch}


def _fingerprints(session: Session) -> dict[str, Any]:
    return {
        "profile": session.identity.digest,
        "entries": [entry.summary() for entry in session.compiled_entries],
    }


def _graphs(session: Session | None) -> list[dict[str, Any]] | None:
    """Which graphs came from the cache on disk, and the seconds that each took."""
    return None if session is None else [entry.cost() for entry in session.compiled_entries]


def tokens_summary(
    ids: Sequence[int], evaluated: Sequence[int] | np.ndarray | None
) -> dict[str, int | str | None]:
    """Count and hash of the tokens that were given, and of those that were evaluated."""
    flat = None if evaluated is None else np.asarray(evaluated).reshape(-1)
    return {
        "count": len(ids),
        "sha256": sha256_tokens(ids),
        "evaluated_count": None if flat is None else len(flat),
        "evaluated_sha256": None if flat is None else sha256_tokens(flat),
    }


def _device(device: jax.Device) -> dict[str, Any]:
    from synapse_jax.graph.fingerprint import thread_count

    return {
        "platform": device.platform,
        "kind": device.device_kind,
        "index": device.id,
        "threads": thread_count(),
        "machine": platform.machine(),
    }


def versions_summary() -> dict[str, str]:
    """Versions of Python and of the packages that figures may depend on."""
    packages = ("synapse-jax", "jax", "jaxlib", "numpy", "gguf", "tokenizers")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


def _memory(session: Session | None) -> dict[str, Any]:
    cache = None if session is None else session.cache
    return {
        "kv_allocated_bytes": None if cache is None else cache.allocated_bytes,
        "kv_live_bytes": None if cache is None else cache.live_bytes,
        "kv_positions": None if cache is None else cache.held,
        "kv_capacity": None if cache is None else cache.capacity,
        "kv_snapshots": None if cache is None else list(cache.snapshots),
        "peak_rss_bytes": peak_rss_bytes(),
    }
