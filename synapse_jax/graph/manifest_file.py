"""Files of manifests: written so that their diffs can be read, and read with care."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.graph.manifest import SCHEMA
from synapse_jax.io.atomic_file import atomic_text
from synapse_jax.io.json_text import parse_json
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import read_text


def read_manifest(path: str | Path) -> dict[str, Any]:
    """A manifest.

    Raises:
        InputError: the file cannot be read or is something else.
    """
    shown = shown_path(path)
    manifest = parse_json(read_text(path), shown)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise InputError(f"{shown}: is no manifest of graphs: its schema is {found!r}, not {SCHEMA!r}")
    for field, kind in {"jax": str, "model": str, "spec": dict, "profiles": dict}.items():
        if not isinstance(manifest.get(field), kind):
            raise InputError(f"{shown}: field {field} is missing or of another kind")
    for name, section in manifest["profiles"].items():
        _check_section(manifest, section, f"{shown}: profiles.{name}")
    return manifest


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Writes a manifest, lists and inner objects a line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_text(path) as file:
        file.write(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def manifest_files(folder: str | Path) -> list[Path]:
    """Every manifest in a folder and the folders in it, by name; a file is itself.

    Raises:
        InputError: there is none.
    """
    path = Path(folder)
    found = [path] if path.is_file() else sorted(path.rglob("*.json"))
    if not found:
        raise InputError(f"{shown_path(folder)}: no manifests of graphs (*.json) are there")
    return found


def _check_section(manifest: dict[str, Any], section: Any, source: str) -> None:
    kinds = {"choices": dict, "identity": dict, "profile": list, "params": list, "entries": dict}
    if not isinstance(section, dict):
        raise InputError(f"{source} is not an object")
    for field, kind in kinds.items():
        if not isinstance(section.get(field), kind):
            raise InputError(f"{source}.{field} is missing or of another kind")
    ir = section.get("ir")
    if isinstance(ir, str):
        other = manifest["profiles"].get(ir.removeprefix("as "))
        ir = other.get("ir") if isinstance(other, dict) else None
    if not isinstance(ir, list):
        raise InputError(f"{source}.ir is neither lines nor the name of a profile that has them")
    for name, entry in section["entries"].items():
        if not isinstance(entry, dict) or not isinstance(entry.get("arguments"), list):
            raise InputError(f"{source}.entries.{name}.arguments is missing or of another kind")
        programs = entry.get("programs")
        if not isinstance(programs, dict) or not all(isinstance(p, dict) for p in programs.values()):
            raise InputError(f"{source}.entries.{name}.programs is missing or of another kind")
