"""Loss curves. The library is the extra `plot`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from synapse_jax.io.atomic_file import atomic_path
from synapse_jax.train.log import HeldOutLine, Line, StepLine

SMOOTHED_SHARE = 0.02
"""Share of a run's steps that the thick line of the training loss is a mean of."""


def plot_losses(
    path: str | os.PathLike[str], runs: Mapping[str, Sequence[Line]], step_tokens: Mapping[str, int]
) -> None:
    """Training and held-out loss over tokens, a colour a run.

    The last look at the held-out split is at more windows than those before it, so its point is a larger one
    that no line leads to.

    Args:
        path: the plot, of the format that its ending names.
        runs: logs by name.
        step_tokens: targets a step, by the same names.

    Raises:
        InputError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    for index, (name, lines) in enumerate(runs.items()):
        colour, size = f"C{index}", step_tokens[name]
        steps = [line for line in lines if isinstance(line, StepLine)]
        looks = [line for line in lines if isinstance(line, HeldOutLine)]
        tokens = np.array([line.step for line in steps]) * size
        loss = np.array([line.loss for line in steps])
        axes.plot(tokens, loss, color=colour, linewidth=0.4, alpha=0.4)
        width = max(1, int(len(loss) * SMOOTHED_SHARE))
        # A mean over the last `width` steps is drawn at their end: it says nothing of later ones.
        mean = np.convolve(loss, np.ones(width) / width, "valid")
        axes.plot(tokens[width - 1 :], mean, color=colour, linewidth=1.3, label=f"{name}, training")
        last = looks[-1:] if looks and len({line.windows for line in looks}) > 1 else []
        among = looks[: len(looks) - len(last)]
        axes.plot(
            [line.step * size for line in among],
            [line.held_out_loss for line in among],
            "o--",
            color=colour,
            markersize=4,
            label=f"{name}, held out",
        )
        for line in last:
            label = f"{name}, held out at the end: {line.held_out_loss:.4f} ({line.windows} windows)"
            axes.plot([line.step * size], [line.held_out_loss], "*", color=colour, markersize=11, label=label)
    axes.set(xlabel="tokens", ylabel="mean NLL, nats")
    axes.legend(fontsize=8)
    with atomic_path(path) as part:
        figure.savefig(part, dpi=150, format=os.fspath(path).rpartition(".")[2])
