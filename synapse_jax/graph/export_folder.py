"""A folder that holds an exported graph: the module, and a manifest that says what it is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from jax import export

from synapse_jax.errors import InputError
from synapse_jax.graph.compile import lower
from synapse_jax.graph.describe import argument_list, identity_summary
from synapse_jax.graph.entry import Entry, entry_for
from synapse_jax.graph.export import export_entry, load_exported
from synapse_jax.graph.fingerprint import explain, profile_identity
from synapse_jax.io.atomic_file import atomic_folder
from synapse_jax.io.json_text import parse_json
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import read_bytes, read_text
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.ir.text import ir_text
from synapse_jax.spec.runtime import RuntimeProfile
from synapse_jax.spec.stored import read_profile

SCHEMA = "synapse.exported-graph/1"
MANIFEST, MODULE = "manifest.json", "graph.jaxexport"


def write_exported(path: str, ir: ModelIR, entry: Entry, platforms: Sequence[str]) -> dict[str, Any]:
    """Exports an entry into a new folder; returns its manifest.

    The manifest's `program` is the identity of the entry as a session lowers it: with the arguments by name,
    it says what the module computes. The module's bytes have a digest of their own: the same wherever the
    same code and jax export it.

    Args:
        path: the folder, which may not be there yet, or is empty.
        ir: the model.
        entry: the entry.
        platforms: as in `export_entry`.

    Raises:
        InputError: the folder cannot be made, or what `export_entry` refuses.
    """
    with atomic_folder(path) as folder:
        data = export_entry(ir, entry, platforms)
        exported = load_exported(data, MODULE)
        manifest = {
            "schema": SCHEMA,
            "entry": {**entry.summary(), "sequences": entry.sequences},
            "runtime": dataclasses.asdict(ir.profile),
            "ir": ir_text(ir).splitlines(),
            "identities": {
                "profile": identity_summary(profile_identity(ir)),
                "program": identity_summary(lower(ir, entry).program),
            },
            "arguments": argument_list(ir, entry),
            "results": [{"dtype": str(a.dtype), "shape": list(a.shape)} for a in exported.out_avals],
            "module": {
                "file": MODULE,
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "platforms": list(exported.platforms),
                "calling_convention": exported.calling_convention_version,
            },
            "versions": {name: metadata.version(name) for name in ("synapse-jax", "jax", "jaxlib")},
        }
        (folder / MODULE).write_bytes(data)
        text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        (folder / MANIFEST).write_text(text, encoding="utf-8")
    return manifest


class ExportedGraph:
    """An exported graph, read from its folder and checked against its manifest.

    Raises:
        InputError: a file is missing, cut, changed, or of another version; it is named.
    """

    def __init__(self, path: str):
        folder = Path(path)
        self.source = shown_path(folder / MANIFEST)
        manifest = parse_json(read_text(folder / MANIFEST), self.source)
        schema = manifest.get("schema") if isinstance(manifest, dict) else None
        if schema != SCHEMA:
            raise InputError(f"{self.source}: its schema is {schema!r}, this version reads {SCHEMA!r}")
        try:
            module, given = manifest["module"], manifest["entry"]
            self._entry = (given["entry"], given["rows"], given["capacity"], given["sequences"])
            self._parts: dict[str, str] = dict(manifest["identities"]["profile"]["parts"])
            sizes = int(module["bytes"]), str(module["sha256"])
            runtime = manifest["runtime"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.source}: field {error} is missing or of another kind") from None
        self.manifest: dict[str, Any] = manifest
        self.profile: RuntimeProfile = read_profile(runtime, f"{self.source}: runtime")
        self._check_module(folder / MODULE, *sizes)

    def entry(self, ir: ModelIR) -> Entry:
        """The entry, for a model under the graph's profile.

        Raises:
            InputError: the model is another one: the parts that differ are named.
        """
        identity = profile_identity(ir)
        recorded = dataclasses.replace(identity, parts=tuple(self._parts.items()))
        different = explain(recorded, identity)
        if different:
            raise InputError(
                f"{self.source}: the graph is of another model: its {', '.join(different)} differ"
            )
        name, rows, capacity, sequences = self._entry
        try:
            if sequences != 1:
                raise ValueError(f"{sequences} sequences")
            return entry_for(ir, name, rows, capacity)
        except (ValueError, TypeError) as error:
            raise InputError(f"{self.source}: entry: {error}") from None

    def _check_module(self, path: Path, size: int, sha256: str) -> None:
        data, shown = read_bytes(path), shown_path(path)
        if len(data) != size:
            raise InputError(f"{shown}: has {len(data)} bytes, its manifest says {size}")
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise InputError(f"{shown}: is of sha256 {found}, its manifest says {sha256}")
        self.exported: export.Exported = load_exported(data, shown)
