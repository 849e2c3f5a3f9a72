"""`synapse score`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.checkpoints import begin, check_checkpoint, define_checkpoint, run_identity
from synapse_jax.cli.inputs import SOURCES, Tokens, open_model, read_scored
from synapse_jax.cli.output import check_files_differ, optional_file, save, show
from synapse_jax.cli.progress import Progress, say, warn
from synapse_jax.cli.recall import fill_in, read_score_record
from synapse_jax.cli.sessions import kv_memory, open_session, timed
from synapse_jax.dims import MAX_STEP_ROWS
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.evals.checkpoint import Checkpoint
from synapse_jax.evals.score import ChunkScore, Protocol, score_chunks, summarize
from synapse_jax.evals.trace import Trace, open_trace
from synapse_jax.evals.verify import moved
from synapse_jax.io.model_file import ModelFile
from synapse_jax.kv.kinds import step_rows
from synapse_jax.runtime.plan import scoring_entries
from synapse_jax.spec.runtime import RuntimeProfile, resolve


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    shared.define_text(values)
    shared.define_runtime(values, context=512)
    shared.define_protocol(values)
    flags.DEFINE_integer("scoring_rows", MAX_STEP_ROWS, "Tokens a step, 1 to 512.", flag_values=values)
    flags.DEFINE_string(
        "trace", None, "Write a JSON line for every scored token to this file.", flag_values=values
    )
    define_checkpoint(values, "Put every chunk's sums into this file as they come.")
    flags.DEFINE_string(
        "verify",
        None,
        "Run the scoring of this record again and say what moved; flags that are given take precedence.",
        flag_values=values,
    )
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Scores the input and prints its perplexity."""
    verified = None if values.verify is None else read_score_record(values.verify)
    if verified is not None:
        fill_in(values, verified["arguments"], str(values.verify))
    shared.choose_one(values, SOURCES)
    if not 1 <= values.scoring_rows <= MAX_STEP_ROWS:
        raise InputError(f"--scoring-rows {values.scoring_rows} is not from 1 to {MAX_STEP_ROWS}")
    check_checkpoint(values)
    if verified is not None and values.checkpoint is not None:
        raise InputError("--verify evaluates everything again: it does not go with --checkpoint")
    check_files_differ(values, ("trace", "output", "checkpoint"))
    profile = shared.profile_from(values)
    if profile.policy.is_decode_only and values.scoring_rows != 1:
        raise InputError(
            f"--attention {profile.attention} is of tokens evaluated one by one: it needs --scoring-rows 1, "
            f"not {values.scoring_rows}"
        )
    with optional_file(values.output) as output, open_model(values) as model:
        resolve(profile, model.spec)
        work = _Work(values, model, profile, *read_scored(values, model))
        with work.checkpoint() as checkpoint, open_trace(values.trace, checkpoint) as trace:
            record = work.run(checkpoint, trace)
        found = [] if verified is None else moved(verified, record)
        if verified is not None:
            record["result"]["verify"] = [dataclasses.asdict(change) for change in found]
        save(output, record)
    show(values, record, _table(record))
    if verified is None:
        return 0
    for change in found:
        warn(f"{values.verify}: {change}")
    if not found:
        say(values.progress)(f"{values.verify}: every part and every figure is the same")
    return 1 if found else 0


class _Work:
    """What is to be scored, checked before anything is compiled."""

    def __init__(
        self,
        values: flags.FlagValues,
        model: ModelFile,
        profile: RuntimeProfile,
        tokens: Tokens,
        protocol: Protocol,
        chunks: np.ndarray,
    ):
        self._values, self._model, self._profile = values, model, profile
        self._tokens, self._protocol, self._chunks = tokens, protocol, chunks
        self._rows = min(values.scoring_rows, protocol.n_ctx - 1, step_rows(profile))
        if len(tokens.ids) < 2 * protocol.n_ctx and values.score_last is None:
            warn(
                f"llama-perplexity wants at least {2 * protocol.n_ctx} tokens, two chunks; "
                f"there are {len(tokens.ids)}"
            )

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[Checkpoint | None]:
        """The checkpoint that the flags ask for; one of another run is refused."""
        if self._values.checkpoint is None:
            yield None
            return
        with Checkpoint(self._values.checkpoint, self._identity(), resume=self._values.resume) as checkpoint:
            yield checkpoint

    def run(self, checkpoint: Checkpoint | None, trace: Trace) -> dict[str, Any]:
        """Scores the tokens; returns the record."""
        values, protocol = self._values, self._protocol
        prompt = protocol.start - 1 if self._profile.policy.is_decode_only else 0
        entries = scoring_entries(protocol.n_ctx - 1, self._rows, prompt)
        session = open_session(values, self._model, self._profile, entries, protocol.n_ctx - 1)
        done = [] if checkpoint is None else list(checkpoint.chunks)
        if checkpoint is not None:
            begin(checkpoint, session, values, len(done), len(self._chunks), "chunks")

        def score() -> list[ChunkScore]:
            scored = list(done)
            progress = Progress(values.progress, "score", "positions", lambda: kv_memory(session))
            for chunk in score_chunks(
                session,
                self._chunks,
                protocol,
                rows=self._rows,
                done=done,
                progress=progress,
                trace=trace.write,
            ):
                if checkpoint is not None:
                    checkpoint.add(chunk, trace.flush())
                scored.append(chunk)
            return scored

        scored, seconds = timed(score, session)
        result = {
            **dataclasses.asdict(summarize(scored, protocol)),
            "dropped_trailing_newline": self._tokens.dropped_newline,
            "scoring_rows": values.scoring_rows,
            "step_rows": self._rows,
        }
        evaluated = (len(self._chunks) - len(done)) * protocol.n_ctx
        return records.build_record(
            "score",
            arguments=shared.given_arguments(values),
            result=result,
            model=self._model,
            session=session,
            ids=self._tokens.ids,
            evaluated=self._chunks,
            timings=records.Timings(session.load_s, session.compile_s, seconds, evaluated, len(done)),
        )

    def _identity(self) -> dict[str, Any]:
        """What the chunk sums depend on, but for the compiled graphs."""
        return {
            **run_identity(self._model, self._profile, self._tokens.ids, self._chunks),
            "protocol": dataclasses.asdict(self._protocol),
            "step_rows": self._rows,
            "trace": self._values.trace is not None,
        }


def _table(record: dict) -> list[tuple[str, str]]:
    result, tokens, fingerprints = record["result"], record["tokens"], record["fingerprints"]
    error = result["perplexity_error"]
    speed = record["timings"]["tokens_per_second"]
    rows = [
        ("perplexity", f"{result['perplexity']:.4f}" + ("" if error is None else f" ± {error:.4f}")),
        (
            "protocol",
            f"{result['protocol']}, n_ctx {result['n_ctx']}, {len(result['chunks'])} chunks, "
            f"{result['scored_tokens']} scored tokens",
        ),
        (
            "tokens",
            f"{tokens['count']}, of which {tokens['evaluated_count']} evaluated "
            f"(sha256 {tokens['evaluated_sha256'][:16]}…)",
        ),
        (
            "model",
            f"{record['model']['name']} ({record['model']['arch']}), {record['runtime']['precision']}",
        ),
        *([] if result["read_share"] is None else [("read share", f"{100 * result['read_share']:.2f} %")]),
        ("speed", "none" if speed is None else f"{speed:.1f} tokens/s"),
        ("profile", fingerprints["profile"]),
    ]
    return rows + [
        (f"graph {entry['entry']} {entry['rows']}×{entry['capacity']}", entry["program"])
        for entry in fingerprints["entries"]
    ]
