"""What commands that can be resumed say of a run, and to whoever resumes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from synapse_jax.cli.progress import say
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.evals.checkpoint_file import CheckpointFile
from synapse_jax.io.model_file import ModelFile
from synapse_jax.spec.runtime import RuntimeProfile, resolve

if TYPE_CHECKING:  # what is asked for is checked without jax
    from synapse_jax.runtime.session import Session


def define_checkpoint(values: flags.FlagValues, what: str) -> None:
    """`--checkpoint`, with a sentence that says what is put there, and `--resume`."""
    flags.DEFINE_string("checkpoint", None, what, flag_values=values)
    flags.DEFINE_bool("resume", False, "Go on after the last whole line of --checkpoint.", flag_values=values)


def check_checkpoint(values: flags.FlagValues) -> None:
    """Refuses `--resume` alone.

    Raises:
        InputError: there is nothing to go on with.
    """
    if values.resume and values.checkpoint is None:
        raise InputError("--resume goes with --checkpoint")


def run_identity(
    model: ModelFile, profile: RuntimeProfile, ids: Sequence[int], evaluated: np.ndarray
) -> dict[str, Any]:
    """What the figures of any run depend on, but for its own plan and the compiled graphs."""
    from synapse_jax.graph.fingerprint import profile_identity
    from synapse_jax.ir.build import build

    ir = build(model.spec, resolve(profile, model.spec))
    return {
        "model": model.sha256(),
        "profile": dict(profile_identity(ir).parts),
        "tokens": records.tokens_summary(ids, evaluated),
        # Weights and angles are made on the host by these.
        "versions": records.versions_summary(),
    }


def begin(
    checkpoint: CheckpointFile, session: Session, values: flags.FlagValues, done: int, total: int, what: str
) -> None:
    """Says which graphs the session runs, and how much of `total` is there already.

    Raises:
        InputError: what is there came from other graphs.
    """
    checkpoint.begin({str(e.entry): dict(e.executable.parts) for e in session.compiled_entries})
    if done:
        say(values.progress)(f"{done} of {total} {what} are in {values.checkpoint}")
