"""Identities of graphs: named parts, each hashed alone, so that a difference has a name."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
from importlib import metadata
from pathlib import Path

import jax

from synapse_jax.graph.entry import Entry
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.ir.text import ir_text
from synapse_jax.spec.digest import canonical_json, sha256_text

_MODULE_NAME = re.compile(r"^module @\S+", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Identity:
    """A named set of parts with the SHA-256 of each."""

    kind: str
    """`profile`, `program` or `executable`."""
    parts: tuple[tuple[str, str], ...]
    """(name, hexadecimal SHA-256), in a fixed order."""

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 over all names and part digests."""
        return sha256_text(canonical_json([self.kind, self.parts]))


def explain(a: Identity, b: Identity) -> list[str]:
    """Names of the parts in which two identities differ, in order."""
    left, right = dict(a.parts), dict(b.parts)
    return [name for name in dict.fromkeys([*left, *right]) if left.get(name) != right.get(name)]


def profile_identity(ir: ModelIR) -> Identity:
    """What the numbers depend on: model, RoPE profile, attention policy, precision, KV dtype, page size, and
    whether layers are a loop, whose last digits may differ.

    It holds no shapes of steps and no version, so it keys prefixes, checkpoints and records.
    """
    profile = ir.profile
    parts = {
        "ir": ir_text(ir),
        "rope": canonical_json(ir.rope_tables),
        "attention": profile.attention,
        "precision": profile.precision,
        "kv_dtype": profile.kv_dtype,
        "page_size": str(profile.page_size),
    }
    if profile.layers != "unrolled":
        parts["layers"] = profile.layers
    return _identity("profile", parts)


def program_identity(ir: ModelIR, entry: Entry, stablehlo: str) -> Identity:
    """An entry's program: the profile, its shapes, its StableHLO text and what it donates.

    Args:
        ir: the model.
        entry: the entry.
        stablehlo: the lowered module without debug information.
    """
    parts = {
        "entry": entry.name,
        "rows": str(entry.rows),
        "capacity": str(entry.capacity),
        "sequences": str(entry.sequences),
        "stablehlo": normalised(stablehlo),
        "donation": "pages",
    }
    return Identity("program", profile_identity(ir).parts + _identity("program", parts).parts)


def move_identity(name: str, stablehlo: str) -> Identity:
    """The program of a move of pages (`graph.moves`): it belongs to no model.

    Args:
        name: which move.
        stablehlo: the lowered module without debug information; it says what is donated.
    """
    return _identity("program", {"move": name, "stablehlo": normalised(stablehlo)})


def executable_identity(program: Identity, device: jax.Device) -> Identity:
    """A program on a machine: adds versions, device kind and CPU features, thread count and XLA flags."""
    parts = {
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "device": f"{device.platform} {device.device_kind}",
        "cpu_features": cpu_features(),
        "threads": str(thread_count()),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "native_kernels": "none",
    }
    return Identity("executable", program.parts + _identity("executable", parts).parts)


def normalised(stablehlo: str) -> str:
    """The module text under a fixed name: the name follows a Python function's and decides nothing."""
    return _MODULE_NAME.sub("module @entry", stablehlo, count=1)


def thread_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_features() -> str:
    """The processor's feature flags where the system lists them, else its name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return f"{platform.machine()} {platform.processor()}"


def _identity(kind: str, parts: dict[str, str]) -> Identity:
    return Identity(kind, tuple((name, sha256_text(text)) for name, text in parts.items()))
