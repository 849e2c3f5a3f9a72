"""Manifests: what a model's entries lower to, kept under version control and reviewed in diffs.

A manifest belongs to one jax version and holds IR, shapes and program parts. Executable identities are
not in it: they name a machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from synapse_jax.graph.compile import lower_on
from synapse_jax.graph.describe import argument_list
from synapse_jax.graph.entry import READY, entry_for, fitting
from synapse_jax.graph.fingerprint import Identity, profile_identity
from synapse_jax.ir.build import build
from synapse_jax.ir.text import ir_text, profile_text
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope_scaling import RopeScaling
from synapse_jax.spec.runtime import RuntimeProfile, resolve


def build_manifest(model: str, spec: ModelSpec, profiles: Mapping[str, RuntimeProfile]) -> dict[str, Any]:
    """Lowers every entry that is ready at load, for a CPU; needs no weights.

    Args:
        model: the catalog name.
        spec: the model.
        profiles: runtime profiles by name.
    """
    return {
        "jax": jax.__version__,
        "model": model,
        "spec": dataclasses.asdict(spec),
        "profiles": {name: _profile(spec, profile) for name, profile in profiles.items()},
    }


def read_spec(manifest: Mapping[str, Any]) -> ModelSpec:
    """The model of a manifest that was read from JSON."""
    fields: dict[str, Any] = dict(manifest["spec"])
    scaling: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in fields["rope_scaling"].items()
    }
    fields["rope_scaling"] = RopeScaling(**scaling)
    fields["window_layers"] = tuple(fields["window_layers"])
    return ModelSpec(**fields)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Paths at which two manifests differ, as `profiles.f32.entries.decode 1×1024.program.stablehlo`."""
    return list(_differences("", old, new))


def _profile(spec: ModelSpec, profile: RuntimeProfile) -> dict[str, Any]:
    ir = build(spec, resolve(profile, spec))
    device = jax.devices("cpu")[0]
    entries = {}
    params: list[str] = []
    for name, rows in fitting(ir.profile, READY):
        entry = entry_for(ir, name, rows)
        arguments = [
            f"{a['name']} {a['dtype']}{a['shape']}{' donated' if a['donated'] else ''}"
            for a in argument_list(ir, entry)
        ]
        params = [line for line in arguments if line.startswith("params")]
        entries[f"{name} {rows}×{entry.capacity}"] = {
            "arguments": [line for line in arguments if not line.startswith("params")],
            "program": _identity(lower_on(ir, entry, device).program),
        }
    return {
        "identity": _identity(profile_identity(ir)),
        "profile": profile_text(ir).splitlines(),
        "ir": ir_text(ir).splitlines(),
        "params": params,
        "entries": entries,
    }


def _identity(identity: Identity) -> dict[str, str]:
    return {"digest": identity.digest, **dict(identity.parts)}


def _differences(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from _differences(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif old != new:
        yield path
