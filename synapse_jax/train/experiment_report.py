"""Table, verdict and plots of EXP-018, from the records of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from synapse_jax.evals.interval import Interval, mean_interval
from synapse_jax.evals.probe_plot import plot_probes
from synapse_jax.train.experiment import Experiment, Run

Records = Mapping[str, Mapping[str, Any]]
"""Records of runs by their names."""

KIB = 1024
LOSSES = {"loss": "all positions", "loss_beyond_window": "positions beyond the window"}
"""Held-out losses of a record, and of which targets they are."""


def table(experiment: Experiment, records: Records) -> str:
    """A markdown row a variant: held-out loss with its spread over seeds, live cache, copy gain."""
    lines = [
        "| attention | seeds | held-out loss | beyond the window | live cache, KiB | copy gain by depth |",
        "|---|---|---|---|---|---|",
    ]
    for variant in experiment.variants:
        found = _of(experiment, records, variant.name)
        if not found:
            continue
        losses = [_spread([record["held_out"][key] for record in found]) for key in LOSSES]
        live = {record["cache"]["live_bytes"] for record in found}
        cache = " / ".join(f"{count / KIB:.1f}" for count in sorted(live))
        lines.append(
            f"| {variant.attention} | {len(found)} | {losses[0]} | {losses[1]} | {cache} | {_gains(found)} |"
        )
    return "\n".join(lines)


def verdict(experiment: Experiment, records: Records) -> list[str]:
    """What the records say about both hypotheses, a line each; figures that are missing are said to be."""
    lines = []
    full = _of(experiment, records, "full")
    for block in experiment.blocks:
        compressed = _of(experiment, records, f"b{block}")
        if full and compressed:
            inside = experiment.window * experiment.shape.kv_position_bytes
            before, after = (found[0]["cache"]["live_bytes"] - inside for found in (full, compressed))
            lines.append(
                f"Cache outside the window, blocks of {block}: {before / after:.2f} times smaller than "
                f"without compression ({before / KIB:.1f} → {after / KIB:.1f} KiB)."
            )
        for key, where in LOSSES.items():
            pairs = _paired(experiment, records, f"b{block}", f"w{experiment.equal_window(block)}", key)
            lines.append(f"Blocks of {block} against a window of equal cache, {where}: {_compared(pairs)}")
    return lines


def plot_losses(experiment: Experiment, records: Records, path: str) -> None:
    """Held-out loss over live cache: a point a run, the mean of each variant."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for index, variant in enumerate(experiment.variants):
        found = _of(experiment, records, variant.name)
        if not found:
            continue
        cache = [record["cache"]["live_bytes"] / KIB for record in found]
        losses = [record["held_out"]["loss"] for record in found]
        left.plot(cache, losses, "o", color=f"C{index}", alpha=0.5)
        left.plot(
            cache[:1], [statistics.fmean(losses)], "_", color=f"C{index}", markersize=18, label=variant.name
        )
        columns = zip(*(record["held_out"]["by_position"] for record in found), strict=True)
        means = [statistics.fmean(column) for column in columns]
        step = experiment.plan.length / len(means)
        right.plot(
            [(i + 0.5) * step for i in range(len(means))], means, color=f"C{index}", label=variant.name
        )
    left.set(xlabel="live cache of one sequence, KiB", ylabel="held-out loss, nats a token", xscale="log")
    right.set(xlabel="position", ylabel="held-out loss, nats a token")
    right.axvline(experiment.window, color="0.7", linewidth=0.8)
    left.legend(fontsize=8)
    figure.savefig(path, dpi=130)


def plot_gains(experiment: Experiment, records: Records, path: str) -> None:
    """Gain by depth of the first seed's models, with the reach of their windows."""
    first = experiment.seeds[0]
    probes = {
        variant.name: {"result": record["probe"]}
        for variant in experiment.variants
        if (record := records.get(Run(variant, first).name)) is not None and record["probe"] is not None
    }
    if probes:
        plot_probes(probes, path)


def _of(experiment: Experiment, records: Records, variant: str) -> list[Mapping[str, Any]]:
    """The records of a variant, seed by seed."""
    return [
        records[run.name] for run in experiment.runs if run.variant.name == variant and run.name in records
    ]


def _paired(experiment: Experiment, records: Records, a: str, b: str, key: str) -> list[float]:
    """Loss of `a` less that of `b`, for the seeds that both have."""
    losses, others = (
        {record["seed"]: record["held_out"][key] for record in _of(experiment, records, name)}
        for name in (a, b)
    )
    return [losses[seed] - others[seed] for seed in experiment.seeds if seed in losses and seed in others]


def _compared(differences: Sequence[float]) -> str:
    if not differences:
        return "not measured yet."
    found = mean_interval(differences)
    text = f"{found.mean:+.4f} nats"
    if found.low is None or found.high is None:
        return f"{text} (one seed)."
    text += f", 95 % from {found.low:+.4f} to {found.high:+.4f} over {found.n} seeds"
    return f"{text}: {_reading(found)}."


def _reading(found: Interval) -> str:
    assert found.low is not None and found.high is not None
    if found.high < 0:
        return "compression loses less"
    return "the window loses less" if found.low > 0 else "no difference that the seeds can tell"


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.4f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.4f}"


def _gains(found: Sequence[Mapping[str, Any]]) -> str:
    means = [at["gain"]["mean"] for record in found if record["probe"] for at in record["probe"]["depths"]]
    return f"{min(means):.2f} … {max(means):.2f}" if means else ""
