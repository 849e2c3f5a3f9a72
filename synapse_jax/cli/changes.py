"""Changed flags as one argument: 'name=value name=value'."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import quote


def parse_changes(given: str, command: str, file: str, unused: Collection[str] = ()) -> dict[str, str]:
    """The flags that a side of a comparison changes.

    Args:
        given: the argument.
        command: which compares, for messages.
        file: what the argument might have been as well, for messages.
        unused: flags that the command has no use for.

    Raises:
        InputError: not of this form, or a flag without use.
    """
    changes = {}
    try:
        words = shlex.split(given)
    except ValueError:
        words = [""]
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not equals or not name:
            raise InputError(
                f"{quote(given)} is neither {file} nor changed flags as in 'kv-dtype=bf16 precision=f32'"
            )
        if name in unused:
            raise InputError(f"{quote(given)}: {command} has no use for --{name.replace('_', '-')}")
        changes[name] = value
    return changes
