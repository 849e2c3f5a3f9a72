"""The two sides of `graph diff`: a model under a profile, or a manifest."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.changes import parse_changes
from synapse_jax.cli.entries import chosen_entries, define_entry
from synapse_jax.cli.inputs import open_model
from synapse_jax.errors import InputError
from synapse_jax.io.quoting import quote, shown_path

NOT_OF_A_SIDE = ("a", "b", "platform", "stablehlo")
"""Flags of `graph diff` that no side has for itself."""


def define_side(values: flags.FlagValues) -> None:
    """Flags that say what a side is."""
    shared.define_model(values)
    define_entry(values, None, "without one of these flags, what is ready at load")
    shared.define_runtime(values, context=None)


class GraphSide:
    """Sections of a manifest, by profile: read from a file, or made of a model under the flags given.

    Args:
        values: the flags of the command.
        given: `FILE`, `FILE:PROFILE`, or changed flags.
        stack: closes the model.
    """

    def __init__(self, values: flags.FlagValues, given: str, stack: contextlib.ExitStack):
        self.name = given or "as it is"
        self._platform = values.platform
        path, _, profile = given.rpartition(":")
        if os.path.isfile(given):
            self._read(given, None)
        elif os.path.isfile(path):
            self._read(path, profile)
        else:
            self._build(values, given, stack)

    def stablehlo(self, profile: str, entry: str) -> str:
        """The text of an entry's module.

        Raises:
            InputError: the entry of the manifest is of another jax, or of another state of this code.
        """
        from synapse_jax.graph.fingerprint import normalised
        from synapse_jax.graph.manifest import entry_name, model_ir, ready_entries
        from synapse_jax.graph.portable import stablehlo_for
        from synapse_jax.spec.digest import sha256_text
        from synapse_jax.spec.stored import read_spec

        if self._manifest is None:
            ir, entries = self._ir, self._entries
        else:
            source, spec = shown_path(self.name), self._manifest["spec"]
            choices = self._manifest["profiles"][profile]["choices"]
            ir = model_ir(read_spec(spec, f"{source}: spec"), choices, f"{source}: profiles.{profile}")
            entries = ready_entries(ir)
        found = [wanted for wanted in entries if entry_name(wanted) == entry]
        text = normalised(stablehlo_for(ir, found[0], [self._platform])[self._platform]) if found else ""
        recorded = self.sections[profile]["entries"][entry]["programs"][self._platform]["stablehlo"]
        if sha256_text(text) != recorded:
            raise InputError(
                f"{shown_path(self.name)}: {entry} is of jax {self.jax} or of another state of this code: "
                "its StableHLO text is not known; compare without --stablehlo"
            )
        return text

    def _read(self, path: str, profile: str | None) -> None:
        from synapse_jax.graph.manifest import profile_section
        from synapse_jax.graph.manifest_file import read_manifest

        self._manifest: dict[str, Any] | None = read_manifest(path)
        names = list(self._manifest["profiles"]) if profile is None else [profile]
        for name in names:
            if name not in self._manifest["profiles"]:
                there = ", ".join(self._manifest["profiles"])
                raise InputError(f"{shown_path(path)}: there is no profile {quote(name)}, only {there}")
        self.jax: str = self._manifest["jax"]
        self.sections = {name: profile_section(self._manifest, name) for name in names}

    def _build(self, values: flags.FlagValues, given: str, stack: contextlib.ExitStack) -> None:
        arguments = shared.given_arguments(values)
        for name in NOT_OF_A_SIDE:
            arguments.pop(name, None)
        changes = parse_changes(given, "graph diff", "a manifest (FILE or FILE:PROFILE)", ("device",))
        own = shared.CommandFlags("graph diff", "", define_side)
        own.parse([f"--{name}={value}" for name, value in {**arguments, **changes}.items()])
        profile = shared.profile_from(own.values)
        model = stack.enter_context(open_model(own.values))

        import jax

        from synapse_jax.graph.manifest import describe_profile
        from synapse_jax.ir.build import build
        from synapse_jax.spec.runtime import resolve

        self._manifest = None
        self._ir = build(model.spec, resolve(profile, model.spec))
        self._entries = chosen_entries(own.values, self._ir, "graph diff")
        self.jax = jax.__version__
        platforms = {entry: [self._platform] for entry in self._entries}
        self.sections = {"": describe_profile(self._ir, platforms)}


def pair(a: GraphSide, b: GraphSide) -> list[tuple[str, str, str]]:
    """(what to call it, profile of A, profile of B) of the profiles to compare.

    Raises:
        InputError: one side has one profile and the other several.
    """
    if len(a.sections) == len(b.sections) == 1:
        return [("", next(iter(a.sections)), next(iter(b.sections)))]
    for one, other in ((a, b), (b, a)):
        if len(one.sections) == 1:
            raise InputError(
                f"{shown_path(other.name)} has {len(other.sections)} profiles, the other side one: name one "
                f"as in {shown_path(other.name)}:{next(iter(other.sections))}"
            )
    return [(name, name, name) for name in dict.fromkeys([*a.sections, *b.sections])]
