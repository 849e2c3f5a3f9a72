"""`synapse compare A B`."""

from __future__ import annotations

import contextlib
from typing import Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.compare_control import compare_control
from synapse_jax.cli.controls import given_control
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress
from synapse_jax.cli.sessions import timed
from synapse_jax.cli.sides import Side, check_same_tokens
from synapse_jax.errors import InputError, RunError
from synapse_jax.evals import record as records
from synapse_jax.evals.compare import Divergence, divergence, summarize, worst_positions
from synapse_jax.evals.controls.open import FORMS, check_scaling

OPERANDS = ("a", "b")
"""Flags that words without a dash fill in, in this order."""
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
    flags.DEFINE_string(
        "control",
        None,
        f"Instead of B another engine: {FORMS}. For parity give llama.cpp weights dequantized to F32.",
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
    """Compares two configurations, or one with another engine, on the same tokens."""
    if values.a is None:
        raise InputError("compare takes two configurations, A and B, or A and --control: A is missing")
    if (values.b is None) == (values.control is None):
        given = "both B and --control are given" if values.b is not None else "B is missing"
        raise InputError(f"compare takes two configurations, A and B, or A and --control: {given}")
    if values.plot is not None:
        from synapse_jax.evals.plots import check_plot  # says at once if there is no library for it

        check_plot(values.plot)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(optional_file(values.output))
        a = Side(values, values.a, stack)
        if values.control is None:
            b = Side(values, values.b, stack)
            check_same_tokens(a, b)
            found, seconds = _compare(values, a, b)
            other, sessions = b.summary(), [a.session, b.session]
        else:
            check_scaling(a.flags.rope_scaling, values.control)
            control = stack.enter_context(given_control(values, a.protocol.n_ctx, a.model.tokenizer))
            assert control is not None
            found, chunks, seconds = compare_control(values, a, control)
            other = {"given": values.control, "engine": control.name, "chunks": chunks}
            sessions = [a.session]
        record = _record(values, a, other, sessions, found, seconds)
        save(output, record)
    show(values, record, _table(record))
    if values.plot is not None:
        from synapse_jax.evals.plots import plot_divergence

        plot_divergence(values.plot, found, a.name, other["given"] or "as it is")
    return 0


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
            try:
                for (first, a_RV), (_, b_RV) in blocks:
                    parts.append(divergence(a_RV, b_RV, ids[first : first + len(a_RV)]))
                    progress(index * each + first + len(a_RV) - a.protocol.start, each * len(a.chunks))
            except RunError as error:
                raise RunError(f"chunk {index}: {error}") from error

    _, seconds = timed(work, a.session, b.session)
    return Divergence.join(parts), seconds


def _record(
    values: flags.FlagValues,
    a: Side,
    other: dict[str, Any],
    sessions: list[Any],
    found: Divergence,
    seconds: float,
) -> dict[str, Any]:
    result = {
        "a": a.summary(),
        "b": other,
        "n_ctx": a.protocol.n_ctx,
        "protocol": a.protocol.name,
        "chunks": len(a.chunks),
        **summarize(found),
        "worst": _worst(a, found, values.worst),
    }
    load_s, compile_s = (sum(getattr(s, name) for s in sessions) for name in ("load_s", "compile_s"))
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
            "kl": None if found.kl is None else float(found.kl[index]),
        })  # fmt: skip
    return worst


def _table(record: dict[str, Any]) -> list[tuple[str, str]]:
    result = record["result"]
    kl, change, delta_p = result["kl"], result["delta_nll"], result["delta_p"]
    rows = [
        ("A", result["a"]["given"]),
        ("B", result["b"]["given"]),
        ("positions", f"{result['positions']} in {result['chunks']} chunks of {result['n_ctx']}"),
        ("perplexity", f"A {result['perplexity_a']:.5f}, B {result['perplexity_b']:.5f}"),
        ("ratio B/A", _with_error(result["perplexity_ratio"], result["perplexity_ratio_error"])),
    ]
    if kl is not None:
        rows += [
            ("KL(A‖B)", f"mean {_with_error(kl['mean'], kl['error'])}, max {kl['max']:.6f}"),
            ("KL percentiles", ", ".join(f"{p} %: {v:.6f}" for p, v in kl["percentiles"].items())),
        ]
    else:
        off = max(
            abs(chunk["running_perplexity_a"] / chunk["running_perplexity_b"] - 1)
            for chunk in result["b"]["chunks"]
        )
        rows += [
            ("engine", result["b"]["engine"]),
            ("running figures", f"worst relative difference {100 * off:.5f} %"),
        ]
    rows += [
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
