"""`synapse compare A B`."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli import score
from synapse_jax.cli.inputs import open_model, read_scored
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress
from synapse_jax.cli.recall import fill_in, read_score_record
from synapse_jax.cli.sessions import open_session, timed
from synapse_jax.dims import MAX_STEP_ROWS, row_bucket
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.evals.compare import Divergence, divergence, summarize, worst_positions
from synapse_jax.io.quoting import quote
from synapse_jax.runtime.plan import bucket, steps
from synapse_jax.spec.runtime import resolve

OPERANDS = ("a", "b")
"""Flags that words without a dash fill in, in this order."""
BLOCK_ROWS = 128
"""Most positions whose logits exist at a time on each side."""
CONTEXT_TOKENS = 12
"""Tokens shown before one of the worst positions."""


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    for name, what in (("a", "The reference"), ("b", "The other configuration")):
        flags.DEFINE_string(
            name,
            None,
            f"{what}: a record of score, or changed flags as in 'kv-dtype=bf16'; '' changes none.",
            flag_values=values,
        )
    shared.define_model(values)
    shared.define_text(values)
    shared.define_runtime(values, context=512)
    shared.define_protocol(values)
    flags.DEFINE_integer(
        "worst",
        10,
        "How many of the positions that differ most are shown.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_string("plot", None, "Write a plot to this file: .png, .svg or .pdf.", flag_values=values)
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Compares two configurations on the same tokens."""
    for name in OPERANDS:
        if values[name].value is None:
            raise InputError(f"compare takes two configurations, A and B: {name.upper()} is missing")
    if values.plot is not None:
        from synapse_jax.evals.plots import check_plot  # says at once if there is no library for it

        check_plot(values.plot)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(optional_file(values.output))
        a, b = (Side(values, name, stack) for name in OPERANDS)
        check_same_tokens(a, b)
        found, seconds = _compare(values, a, b)
        record = _record(values, a, b, found, seconds)
        save(output, record)
        if values.plot is not None:
            from synapse_jax.evals.plots import plot_divergence

            plot_divergence(values.plot, found, a.name, b.name)
    show(values, record, _table(record))
    return 0


class Side:
    """One of the two configurations: flags of `score`, the model and tokens that they name."""

    def __init__(self, values: flags.FlagValues, name: str, stack: contextlib.ExitStack):
        given: str = values[name].value  # type: ignore[assignment]
        self.name = given or "as it is"
        self.flags = _side_flags(values, given)
        self.profile = shared.profile_from(self.flags)
        self.model = stack.enter_context(open_model(self.flags))
        resolve(self.profile, self.model.spec)
        self.tokens, self.protocol, self.chunks = read_scored(self.flags, self.model)
        self.session: Any = None

    def open(self) -> None:
        """Opens the session; done when both sides are known to fit."""
        before = steps(self.protocol.start - 1, MAX_STEP_ROWS)
        entries = {("step", bucket(count, MAX_STEP_ROWS)) for _, count in before}
        ready = sorted(entries | {("logits", row_bucket(self.rows))})
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


def _side_flags(values: flags.FlagValues, given: str) -> flags.FlagValues:
    """Flags of `score`: those of a record, or those given with some changed."""
    own = shared.CommandFlags("score", "", score.define)
    arguments = {**shared.given_arguments(values), "progress": values.progress}
    for name in (*OPERANDS, "worst", "plot"):
        arguments.pop(name, None)
    changed = {} if os.path.isfile(given) else _parse_changes(given)
    own.parse([f"--{name}={value}" for name, value in {**arguments, **changed}.items()])
    if os.path.isfile(given):
        fill_in(own.values, read_score_record(given)["arguments"], given)
    return own.values


def _parse_changes(given: str) -> dict[str, str]:
    """Changed flags of 'name=value name=value'."""
    changes = {}
    for word in shlex.split(given):
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals or not name:
            raise InputError(
                f"{quote(given)} is neither a record nor changed flags as in 'kv-dtype=bf16 precision=f32'"
            )
        changes[name.replace("-", "_")] = value
    return changes


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


def _compare(values: flags.FlagValues, a: Side, b: Side) -> tuple[Divergence, float]:
    """Evaluates both sides in step; returns what was found, and seconds."""
    a.open()
    b.open()
    progress = Progress(values.progress, "compare", "positions")
    each = a.protocol.n_ctx - a.protocol.start
    parts: list[Divergence] = []

    def work() -> None:
        progress(0, each * len(a.chunks))
        for index, ids in enumerate(a.chunks):
            blocks = zip(
                *(side.session.logit_blocks(ids, side.protocol.start, rows=side.rows) for side in (a, b)),
                strict=True,
            )
            for (first, a_RV), (_, b_RV) in blocks:
                parts.append(divergence(a_RV, b_RV, ids[first : first + len(a_RV)]))
                progress(index * each + first + len(a_RV) - a.protocol.start, each * len(a.chunks))

    _, seconds = timed(a.session, work)
    return Divergence.join(parts), seconds


def _record(values: flags.FlagValues, a: Side, b: Side, found: Divergence, seconds: float) -> dict[str, Any]:
    result = {
        "a": a.summary(),
        "b": b.summary(),
        "n_ctx": a.protocol.n_ctx,
        "protocol": a.protocol.name,
        "chunks": len(a.chunks),
        **summarize(found),
        "worst": _worst(a, found, values.worst),
    }
    load_s, compile_s = (
        sum(getattr(side.session, name) for side in (a, b)) for name in ("load_s", "compile_s")
    )
    return records.build_record(
        "compare",
        arguments=shared.given_arguments(values),
        result=result,
        model=a.model,
        session=a.session,
        ids=a.tokens.ids,
        evaluated=a.chunks,
        timings=records.Timings(load_s, compile_s, seconds, 2 * a.chunks.size),
    )


def _worst(side: Side, found: Divergence, count: int) -> list[dict[str, Any]]:
    """The positions that differ most, with their text."""
    each, decode = side.protocol.n_ctx - side.protocol.start, side.model.tokenizer.decode
    worst = []
    for index in worst_positions(found, count):
        chunk, offset = divmod(index, each)
        position = side.protocol.start + offset
        ids = side.chunks[chunk].tolist()
        worst.append({
            "chunk": chunk,
            "position": position,
            "token": ids[position],
            "before": decode(ids[max(0, position - CONTEXT_TOKENS) : position]),
            "text": decode([ids[position]]),
            "nll_a": float(found.nll_a[index]),
            "nll_b": float(found.nll_b[index]),
            "kl": float(found.kl[index]),
        })  # fmt: skip
    return worst


def _table(record: dict[str, Any]) -> list[tuple[str, str]]:
    result = record["result"]
    kl, change, delta_p = result["kl"], result["delta_nll"], result["delta_p"]
    rows = [
        ("A", result["a"]["given"]),
        ("B", result["b"]["given"]),
        ("positions", f"{result['positions']} in {result['chunks']} chunks of {result['n_ctx']}"),
        ("perplexity", f"A {result['perplexity_a']:.4f}, B {result['perplexity_b']:.4f}"),
        ("ratio B/A", _with_error(result["perplexity_ratio"], result["perplexity_ratio_error"])),
        ("KL(A‖B)", f"mean {_with_error(kl['mean'], kl['error'])}, max {kl['max']:.6f}"),
        ("KL percentiles", ", ".join(f"{p} %: {v:.6f}" for p, v in kl["percentiles"].items())),
        ("same top token", f"{100 * result['same_top']:.3f} %"),
        ("Δp", f"mean {100 * delta_p['mean']:.4f} %, rms {100 * delta_p['rms']:.4f} %"),
        (
            "ΔNLL",
            f"mean {change['mean']:+.6f}, mean |ΔNLL| {change['mean_abs']:.6f}, "
            f"largest {change['max_abs']:.4f}",
        ),
    ]
    return rows + [
        (
            f"chunk {at['chunk']}, {at['position']}",
            f"NLL {at['nll_a']:.3f} → {at['nll_b']:.3f}  …{at['before']!r} → {at['text']!r}",
        )
        for at in result["worst"]
    ]


def _with_error(value: float, error: float | None) -> str:
    return f"{value:.6f}" + ("" if error is None else f" ± {error:.6f}")
