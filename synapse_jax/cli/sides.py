"""The two sides of a comparison: what each runs, and on which tokens."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli import score
from synapse_jax.cli.changes import parse_changes
from synapse_jax.cli.inputs import SOURCES, open_model, read_scored
from synapse_jax.cli.progress import warn
from synapse_jax.cli.recall import fill_in, read_score_record
from synapse_jax.cli.sessions import open_session
from synapse_jax.dims import row_bucket
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.io.quoting import shown_path
from synapse_jax.runtime.plan import prompt_entries
from synapse_jax.spec.digest import sha256_tokens
from synapse_jax.spec.runtime import resolve

BLOCK_ROWS = 128
"""Most positions whose logits exist at a time on each side."""
NOT_OF_SCORE = ("a", "b", "control", "worst", "plot")
"""Flags of `compare` that are none of `score`."""
UNUSED = ("scoring_rows", "trace", "checkpoint", "resume", "verify", "output", "json", "progress", "debug")
"""Flags of `score` that a comparison has no use for."""


class Side:
    """One of the two configurations: flags of `score`, the model and tokens that they name."""

    def __init__(self, values: flags.FlagValues, given: str, stack: contextlib.ExitStack):
        self.name = given or "as it is"
        record = read_score_record(given) if os.path.isfile(given) else None
        self.flags = _side_flags(values, given, record)
        self.profile = shared.profile_from(self.flags)
        self.model = stack.enter_context(open_model(self.flags))
        resolve(self.profile, self.model.spec)
        self.tokens, self.protocol, self.chunks = read_scored(self.flags, self.model)
        self.session: Any = None
        if record is not None:
            self._check_record(values, record, given)

    def _check_record(self, values: flags.FlagValues, record: dict[str, Any], path: str) -> None:
        """Refuses files that are no longer those of the record, unless a flag replaces them.

        Raises:
            InputError: names what the record says and what is there.
        """
        pairs = []
        if not values["model"].present:
            pairs.append(("a model", record["model"].get("sha256"), self.model.sha256()))
        if not any(values[name].present for name in SOURCES):
            pairs.append(("tokens", record["tokens"].get("sha256"), sha256_tokens(self.tokens.ids)))
        for what, then, now in pairs:
            if then != now:
                raise InputError(f"{shown_path(path)}: is of {what} of sha256 {then}, now it is {now}")
        if self.flags.scoring_rows == 1 and not self.profile.policy.is_decode_only:
            warn(f"{shown_path(path)}: was scored a row at a time; it is compared in full-size steps")

    def open(self) -> None:
        """Opens the session; done when both sides are known to fit."""
        rows = 1 if self.profile.policy.is_decode_only else row_bucket(self.rows)
        ready = [("logits", rows), *prompt_entries(self.protocol.start - 1)]
        self.session = open_session(self.flags, self.model, self.profile, ready, self.protocol.n_ctx - 1)

    @property
    def rows(self) -> int:
        """Positions a block of logits."""
        return min(BLOCK_ROWS, self.protocol.n_ctx - self.protocol.start)

    def summary(self) -> dict[str, Any]:
        """What was run, for the record."""
        return {
            "given": self.name,
            "arguments": shared.given_arguments(self.flags),
            "model_sha256": self.model.sha256(),
            "profile": self.session.identity.digest,
            "runtime": records.runtime_summary(self.session.profile),
        }


def _side_flags(values: flags.FlagValues, given: str, record: dict[str, Any] | None) -> flags.FlagValues:
    """Flags of `score`: those of a record, or those given with some changed."""
    own = shared.CommandFlags("score", "", score.define)
    arguments = {**shared.given_arguments(values), "progress": values.progress}
    for name in NOT_OF_SCORE:
        arguments.pop(name, None)
    changed = {} if record is not None else parse_changes(given, "compare", "a record", UNUSED)
    own.parse([f"--{name}={value}" for name, value in {**arguments, **changed}.items()])
    if record is not None:
        fill_in(own.values, record["arguments"], given)
    return own.values


def check_same_tokens(a: Side, b: Side) -> None:
    """Refuses to compare figures of different tokens.

    Raises:
        InputError: names both counts and the first difference.
    """
    if a.protocol != b.protocol:
        raise InputError(f"the two sides score {a.protocol} and {b.protocol}")
    if a.model.spec.vocab_size != b.model.spec.vocab_size:
        raise InputError(
            f"the vocabularies have {a.model.spec.vocab_size} and {b.model.spec.vocab_size} tokens"
        )
    left, right = a.tokens.ids, b.tokens.ids
    if left != right:
        at = next((i for i, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), None)
        where = "one is the beginning of the other" if at is None else f"token {at} differs"
        raise InputError(f"the two sides evaluate different tokens, {len(left)} and {len(right)}: {where}")
