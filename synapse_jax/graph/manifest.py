"""Manifests: what a model's entries lower to, kept under version control and reviewed in diffs.

A manifest belongs to one jax version and holds the model's spec, and for each of a few runtime profiles IR,
argument shapes and program identities by platform. Executable identities are not in it: they name a machine.
A spec is all that lowering needs, so manifests are checked without model files.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from synapse_jax.graph.describe import argument_lines, argument_list
from synapse_jax.graph.entry import READY, Entry, entry_for, fitting
from synapse_jax.graph.fingerprint import Identity, profile_identity, program_identity
from synapse_jax.graph.portable import PLATFORMS, stablehlo_for
from synapse_jax.ir.build import build
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.ir.text import ir_text, profile_text
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.runtime import resolve
from synapse_jax.spec.stored import profile_of, read_spec

SCHEMA = "synapse.graphs/1"

Choices = Mapping[str, str]
"""What a profile changes: flags by name, as in `{"precision": "bf16"}`."""
Wanted = Callable[[str, str], Sequence[str]]
"""(profile, entry) → the platforms to lower for."""


def build_manifest(
    model: str, spec: ModelSpec, profiles: Mapping[str, Choices], wanted: Wanted = lambda *_: PLATFORMS
) -> dict[str, Any]:
    """Lowers every entry that is ready at load, for every platform; needs no weights and no device.

    Args:
        model: the catalog name.
        spec: the model.
        profiles: what each profile changes, by its name.
        wanted: lowers for fewer platforms; the others are left out.
    """
    sections: dict[str, dict[str, Any]] = {}
    irs: dict[str, str] = {}
    for name, choices in profiles.items():
        ir = model_ir(spec, choices, f"profile {name}")
        entries = ready_entries(ir)
        section = describe_profile(ir, {entry: wanted(name, entry_name(entry)) for entry in entries})
        # An IR is printed once: a profile of the same one names the first.
        first = irs.setdefault(section["identity"]["ir"], name)
        ir_lines = section["ir"] if first == name else f"as {first}"
        sections[name] = {"choices": dict(choices), **section, "ir": ir_lines}
    return {
        "schema": SCHEMA,
        "jax": jax.__version__,
        "model": model,
        "spec": dataclasses.asdict(spec),
        "profiles": sections,
    }


def model_ir(spec: ModelSpec, choices: Choices, source: str) -> ModelIR:
    """The IR of a model under a profile; `source` is for messages.

    Raises:
        InputError: choices that there are not, or that do not fit the model.
    """
    return build(spec, resolve(profile_of(choices, source), spec))


def ready_entries(ir: ModelIR) -> list[Entry]:
    """The entries that a session compiles at load."""
    return [entry_for(ir, name, rows) for name, rows in fitting(ir.profile, READY)]


def entry_name(entry: Entry) -> str:
    """An entry in a manifest, as `step 32×1024`."""
    return f"{entry.name} {entry.rows}×{entry.capacity}"


def describe_profile(ir: ModelIR, platforms: Mapping[Entry, Sequence[str]]) -> dict[str, Any]:
    """The section of a manifest that one profile has.

    Args:
        ir: the model under the profile.
        platforms: the entries, each with the platforms to lower it for.
    """
    entries, params = {}, []
    for entry, names in platforms.items():
        lines = argument_lines(argument_list(ir, entry))
        params = params or [line for line in lines if line.startswith("params")]
        entries[entry_name(entry)] = {
            "arguments": [line for line in lines if not line.startswith("params")],
            "programs": _programs(ir, entry, names),
        }
    return {
        "identity": _identity(profile_identity(ir)),
        "profile": profile_text(ir).splitlines(),
        "ir": ir_text(ir).splitlines(),
        "params": params,
        "entries": entries,
    }


def drift(manifest: Mapping[str, Any], source: str, wanted: Wanted = lambda *_: PLATFORMS) -> list[str]:
    """Where a manifest differs from what this code makes of its spec and its profiles, as `differences`.

    Args:
        manifest: read from JSON, and of the jax that is installed.
        source: its file, for messages.
        wanted: as in `build_manifest`; programs that are not lowered are not compared.

    Raises:
        InputError: a spec or a profile that cannot be used.
    """
    spec = read_spec(manifest["spec"], f"{source}: spec")
    profiles = {name: section["choices"] for name, section in manifest["profiles"].items()}
    new = build_manifest(manifest["model"], spec, profiles, wanted)
    old = copy.deepcopy(dict(manifest))
    for profile, section in old["profiles"].items():
        for name, entry in section["entries"].items():
            for platform in set(PLATFORMS) - set(wanted(profile, name)):
                entry["programs"].pop(platform, None)
    # As it would be read back: tuples become lists.
    return differences(old, json.loads(json.dumps(new)))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Paths at which two manifests differ, as `profiles.f32.entries.decode 1×1024.programs.cpu.stablehlo`."""
    return list(_differences("", old, new))


def profile_section(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A profile's section with its IR in full."""
    section = dict(manifest["profiles"][name])
    if isinstance(section["ir"], str):
        section["ir"] = manifest["profiles"][section["ir"].removeprefix("as ")]["ir"]
    return section


def _programs(ir: ModelIR, entry: Entry, platforms: Sequence[str]) -> dict[str, dict[str, str]]:
    """The program's identity by platform. Only what the entry's name and the profile do not tell is printed:
    its digest, and that of the module."""
    programs = {}
    for platform, text in stablehlo_for(ir, entry, platforms).items():
        identity = program_identity(ir, entry, text)
        programs[platform] = {"digest": identity.digest, "stablehlo": dict(identity.parts)["stablehlo"]}
    return programs


def _identity(identity: Identity) -> dict[str, str]:
    return {"digest": identity.digest, **dict(identity.parts)}


def _differences(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from _differences(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif old != new:
        yield path
