"""`--control`: another engine that is given a command's token IDs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from absl import flags

from synapse_jax.errors import InputError
from synapse_jax.evals.controls.control import Control
from synapse_jax.evals.controls.open import FORMS, check_scaling, control_sha256, open_control
from synapse_jax.io.tokenizer import Tokenizer


def define_control(values: flags.FlagValues) -> None:
    """The flag of a command whose control answers in tokens."""
    flags.DEFINE_string(
        "control",
        None,
        f"Another engine that gets the same token IDs: {FORMS.partition(' or command')[0]}.",
        flag_values=values,
    )


def check_control(values: flags.FlagValues, command: str) -> None:
    """Refuses what can be seen to be no control of this run before anything is opened.

    Raises:
        InputError: a scaling would not reach it, or it gives no tokens.
    """
    if values.control is None:
        return
    check_scaling(values.rope_scaling, values.control)
    if values.control.startswith("command:"):
        raise InputError(f"a command takes text and gives no tokens; {command} compares token IDs")


@contextlib.contextmanager
def given_control(values: flags.FlagValues, context: int, tokenizer: Tokenizer) -> Iterator[Control | None]:
    """The control that the flags ask for, with as many threads as this engine.

    Args:
        values: flags with `control`.
        context: most positions.
        tokenizer: see `open_control`.

    Raises:
        InputError: there is no such engine, it is not installed, or it does not load the model.
    """
    if values.control is None:
        yield None
        return
    from synapse_jax.graph.fingerprint import thread_count

    with contextlib.closing(open_control(values.control, context, thread_count(), tokenizer)) as control:
        yield control


def control_fields(values: flags.FlagValues, control: Control | None) -> dict[str, Any] | None:
    """Who answers beside this engine, as JSON values."""
    if control is None:
        return None
    return {"given": values.control, "engine": control.name, "sha256": control_sha256(values.control)}
