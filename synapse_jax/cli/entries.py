"""Which entries of a model a `graph` command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from synapse_jax.errors import InputError

if TYPE_CHECKING:  # bad input is refused before jax starts
    from synapse_jax.graph.entry import Entry
    from synapse_jax.ir.nodes import ModelIR

NAMES = ("step", "logits", "decode", "sample", "choose")
"""Entries by name; a test compares them with the graph layer's."""
DEFAULT_ROWS = {"step": 512, "logits": 32}
"""Rows of an entry where none are given; the others take one."""


def define_entry(values: flags.FlagValues, default: str | None, what: str) -> None:
    """`--entry`, `--rows` and `--capacity`.

    Args:
        values: takes the flags.
        default: the entry where none is given.
        what: what happens without a flag, for the help.
    """
    flags.DEFINE_enum("entry", default, NAMES, f"An entry; {what}.", flag_values=values)
    flags.DEFINE_integer("rows", None, f"Rows of a step; {what}.", lower_bound=1, flag_values=values)
    flags.DEFINE_integer(
        "capacity", None, f"Positions in the pools; {what}.", lower_bound=1, flag_values=values
    )


def one_entry(values: flags.FlagValues, ir: ModelIR, command: str) -> Entry:
    """The entry that the flags name: by default of the most rows, at the first capacity.

    Raises:
        InputError: rows or a capacity off their ladders.
    """
    from synapse_jax.graph.entry import entry_for, fitting

    name, rows = values.entry, values.rows
    if rows is None:
        ((_, rows),) = fitting(ir.profile, [(name, DEFAULT_ROWS.get(name, 1))])
    try:
        return entry_for(ir, name, rows, values.capacity)
    except ValueError as error:
        raise InputError(f"{command}: {error}") from None


def chosen_entries(
    values: flags.FlagValues, ir: ModelIR, command: str, *, every: bool = False
) -> list[Entry]:
    """The entries that the flags select of all that a session may compile; without any, those ready at load.

    Args:
        values: the flags of `define_entry`.
        ir: the model.
        command: for messages.
        every: all of them where no flag selects.

    Raises:
        InputError: there is none of that name, rows and capacity.
    """
    from synapse_jax.graph.entry import READY, entry_for, fitting
    from synapse_jax.graph.shapes import all_entries

    wanted = (values.entry, values.rows, values.capacity)
    if wanted == (None, None, None) and not every:
        return [entry_for(ir, name, rows) for name, rows in fitting(ir.profile, READY)]
    entries = all_entries(ir)
    found = [
        entry
        for entry in entries
        if all(
            want in (None, own)
            for want, own in zip(wanted, (entry.name, entry.rows, entry.capacity), strict=True)
        )
    ]
    if not found:
        rows, capacities = (sorted({getattr(e, name) for e in entries}) for name in ("rows", "capacity"))
        shown = " ".join(
            f"{name} {want}" for name, want in zip(("entry", "rows", "capacity"), wanted, strict=True) if want
        )
        raise InputError(
            f"{command}: there is no {shown}; rows are {', '.join(map(str, rows))} and capacities "
            f"{', '.join(map(str, capacities))}"
        )
    return found
