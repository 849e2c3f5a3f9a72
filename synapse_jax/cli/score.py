"""`synapse score`."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, TextIO

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import Tokens, open_model, read_input
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress, warn
from synapse_jax.cli.sessions import kv_memory, open_session, timed
from synapse_jax.dims import MAX_STEP_ROWS
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.evals.score import Protocol, TracedToken, score_chunks, summarize
from synapse_jax.io.model_file import ModelFile
from synapse_jax.runtime.plan import scoring_entries
from synapse_jax.spec.runtime import RuntimeProfile, resolve


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    flags.DEFINE_string(
        "text_file", None, "UTF-8 text; exactly one trailing newline is dropped.", flag_values=values
    )
    shared.define_tokens(values)
    shared.define_runtime(values, context=512)
    flags.DEFINE_integer(
        "chunks", None, "Chunks of `context` tokens to score; by default all.", flag_values=values
    )
    flags.DEFINE_integer("scoring_rows", MAX_STEP_ROWS, "Tokens a step, 1 to 512.", flag_values=values)
    flags.DEFINE_integer(
        "score_last",
        None,
        "Score the last N targets of a chunk instead of the protocol's half.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "trace", None, "Write a JSON line for every scored token to this file.", flag_values=values
    )
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Scores the input and prints its perplexity."""
    source = shared.choose_one(values, ("text_file", "tokens_file", "tokens"))
    if not 1 <= values.scoring_rows <= MAX_STEP_ROWS:
        raise InputError(f"--scoring-rows {values.scoring_rows} is not from 1 to {MAX_STEP_ROWS}")
    profile = shared.profile_from(values)
    if None not in (values.trace, values.output) and os.path.realpath(values.trace) == os.path.realpath(
        values.output
    ):
        raise InputError(f"--trace and --output are both {values.trace}")
    with (
        optional_file(values.output) as output,
        optional_file(values.trace) as trace,
        open_model(values) as model,
    ):
        resolve(profile, model.spec)
        tokens = read_input(values, source, model, drop_newline=source == "text_file")
        bos_id = model.tokenizer.bos_id if model.tokenizer.add_bos else None
        protocol = Protocol(values.context, bos_id, values.chunks, values.score_last)
        record = _score(values, model, profile, tokens, protocol, trace)
        save(output, record)
    show(values, record, _table(record))
    return 0


def _score(
    values: flags.FlagValues,
    model: ModelFile,
    profile: RuntimeProfile,
    tokens: Tokens,
    protocol: Protocol,
    trace: TextIO | None,
) -> dict[str, Any]:
    """Scores the tokens; returns the record."""
    chunks = protocol.cut(tokens.ids)
    if len(tokens.ids) < 2 * protocol.n_ctx and values.score_last is None:
        warn(
            f"llama-perplexity wants at least {2 * protocol.n_ctx} tokens, two chunks; "
            f"there are {len(tokens.ids)}"
        )
    rows = min(values.scoring_rows, protocol.n_ctx - 1)
    entries = scoring_entries(protocol.n_ctx - 1, rows)
    session = open_session(values, model, profile, entries, protocol.n_ctx - 1)

    def write(token: TracedToken) -> None:
        if trace is not None:
            trace.write(json.dumps(dataclasses.asdict(token)) + "\n")

    progress = Progress(values.progress, "score", "positions", lambda: kv_memory(session))
    scored, seconds = timed(
        session,
        lambda: list(score_chunks(session, chunks, protocol, rows=rows, progress=progress, trace=write)),
    )
    result = {
        **dataclasses.asdict(summarize(scored, protocol)),
        "dropped_trailing_newline": tokens.dropped_newline,
        "scoring_rows": values.scoring_rows,
        "step_rows": rows,
    }
    timings = records.Timings(session.load_s, session.compile_s, seconds, chunks.size)
    return records.build_record(
        "score",
        result=result,
        model=model,
        session=session,
        ids=tokens.ids,
        evaluated=chunks,
        timings=timings,
    )


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
        ("speed", "none" if speed is None else f"{speed:.1f} tokens/s"),
        ("profile", fingerprints["profile"]),
    ]
    return rows + [
        (f"graph {entry['entry']} {entry['rows']}×{entry['capacity']}", entry["program"])
        for entry in fingerprints["entries"]
    ]
