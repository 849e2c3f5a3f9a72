"""`synapse compare A --control ENGINE:MODEL`: ours against another engine, on the same tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from absl import flags

from synapse_jax.cli.progress import Progress
from synapse_jax.cli.sessions import open_session, timed
from synapse_jax.cli.sides import Side
from synapse_jax.dims import MAX_STEP_ROWS
from synapse_jax.evals.compare import Divergence
from synapse_jax.evals.controls.control import Control, Evaluated, check_identity, check_vocabulary
from synapse_jax.runtime.plan import scoring_entries


def compare_control(
    values: flags.FlagValues, side: Side, control: Control
) -> tuple[Divergence, list[dict[str, Any]], float]:
    """Scores every chunk on both engines.

    Returns:
        What was found (A is ours; there is no KL, as a control gives no distributions), each chunk's figures
        with the engine's own account of its tokens, and seconds.

    Raises:
        InputError: the other engine evaluated other tokens than were meant, or has another vocabulary.
    """
    protocol = side.protocol
    rows = 1 if side.profile.policy.is_decode_only else min(MAX_STEP_ROWS, protocol.n_ctx - 1)
    entries = scoring_entries(protocol.n_ctx - 1, rows, protocol.start - 1)
    side.session = open_session(side.flags, side.model, side.profile, entries, protocol.n_ctx - 1)
    progress = Progress(values.progress, "compare", "chunks")
    parts: list[Divergence] = []
    chunks: list[dict[str, Any]] = []

    def work() -> None:
        sums = np.zeros(2)
        progress(0, len(side.chunks))
        scored = control.score(np.array(side.tokens.ids, np.int32), protocol)
        for index, (ids, theirs) in enumerate(zip(side.chunks, scored, strict=True)):
            check_identity(ids, theirs.evaluated, control.name)
            check_vocabulary(theirs.vocab_size, side.model.spec.vocab_size, control.name)
            ours = side.session.score(ids, protocol.start, rows=rows)
            nll = ours.nll.astype(np.float64)
            parts.append(Divergence(nll, theirs.nll, None, ours.greedy == theirs.greedy))
            sums += nll.sum(), theirs.nll.sum()
            count = sum(len(part.nll_a) for part in parts)
            running_a, running_b = (math.exp(total / count) for total in sums)
            if theirs.running_perplexity is not None:
                running_b = theirs.running_perplexity
            chunks.append(_chunk(index, running_a, running_b, theirs.evaluated))
            progress(index + 1, len(side.chunks))

    _, seconds = timed(work, side.session)
    return Divergence.join(parts), chunks, seconds


def _chunk(index: int, a: float, b: float, evaluated: Evaluated) -> dict[str, Any]:
    return {
        "index": index,
        "running_perplexity_a": a,
        "running_perplexity_b": b,
        "evaluated_count_b": evaluated.count,
        "evaluated_sha256_b": evaluated.sha256,
    }
