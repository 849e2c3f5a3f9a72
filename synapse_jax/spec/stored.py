"""Model specs and runtime profiles in manifests: as JSON holds them, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from synapse_jax.errors import InputError
from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope import RopeProfile
from synapse_jax.spec.rope_scaling import RopeScaling, parse_rope_scaling
from synapse_jax.spec.runtime import RuntimeProfile

Kind = TypeVar("Kind")


def read_spec(fields: Any, source: str) -> ModelSpec:
    """The model of `dataclasses.asdict(spec)` after a way through JSON.

    Args:
        fields: what was read.
        source: the file and field, for messages.

    Raises:
        InputError: a field is missing, unknown or of no use.
    """
    return _read(ModelSpec, fields, source, {"rope_scaling": _reader(RopeScaling, source)})


def read_profile(fields: Any, source: str) -> RuntimeProfile:
    """The resolved runtime profile of `dataclasses.asdict(profile)`; see `read_spec`."""
    return _read(RuntimeProfile, fields, source, {"rope": _reader(RopeProfile, source)})


def profile_of(choices: Any, source: str) -> RuntimeProfile:
    """The runtime profile of a few choices, each as the flag of that name takes it; the rest are defaults.

    Args:
        choices: for example `{"precision": "bf16", "rope_scaling": "yarn:4:8192"}`.
        source: the file and field, for messages.

    Raises:
        InputError: a choice that there is not, or a value that it does not take.
    """
    if not isinstance(choices, Mapping):
        raise InputError(f"{source}: is not an object")
    given = dict(choices)
    if "rope_scaling" in given:
        given["rope"] = parse_rope_scaling(str(given.pop("rope_scaling")))
    return _made(RuntimeProfile, given, source)


def _reader(kind: Callable[..., Any], source: str) -> Callable[[Any], Any]:
    return lambda fields: _read(kind, fields, source, {})


def _read(
    kind: Callable[..., Kind], fields: Any, source: str, inner: Mapping[str, Callable[[Any], Any]]
) -> Kind:
    """A frozen dataclass of all its fields, lists as tuples, `inner` ones by their own readers."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if not isinstance(fields, Mapping) or set(fields) != names:
        found = set(fields) if isinstance(fields, Mapping) else set()
        odd = ", ".join(sorted(found ^ names)[:3])
        raise InputError(f"{source}: the fields {odd} of {kind.__name__} are missing or unknown")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return _made(kind, {name: inner.get(name, _same)(value) for name, value in values.items()}, source)


def _same(value: Any) -> Any:
    return value


def _made(kind: Callable[..., Kind], values: Mapping[str, Any], source: str) -> Kind:
    try:
        return kind(**values)
    except (InputError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{source}: {error}") from None
