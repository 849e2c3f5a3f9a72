"""Plots of results. The library is the extra `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.compare import Divergence
from synapse_jax.io.quoting import shown_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: str) -> None:
    """Refuses a plot that could not be written in the end.

    Raises:
        InputError: matplotlib is not installed, the ending is not a format, or the folder is missing.
    """
    if Path(path).suffix not in FORMATS:
        raise InputError(f"{shown_path(path)}: a plot ends in {', '.join(FORMATS)}")
    if Path(path).is_dir():
        raise InputError(f"{shown_path(path)}: is a folder")
    if not Path(path).resolve().parent.is_dir():
        raise InputError(f"{shown_path(path)}: its folder does not exist")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("plots need matplotlib: pip install 'synapse-jax[plot]'") from None


def save_figure(figure: Figure, path: str) -> None:
    """Writes a figure.

    Raises:
        RunError: the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise RunError(f"{shown_path(path)}: cannot be written: {error.strerror}") from error


def plot_divergence(path: str, found: Divergence, a: str, b: str) -> None:
    """KL divergence and |ΔNLL| over positions, and the share of positions above each value."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    series = {"|ΔNLL|": np.abs(found.nll_b - found.nll_a)}
    if found.kl is not None:
        series = {"KL(A‖B)": found.kl, **series}
    for row, (name, values) in enumerate(series.items()):
        over, share = (figure.add_subplot(len(series), 2, 2 * row + i) for i in (1, 2))
        over.plot(values, linewidth=0.4, color="0.6")
        mean = np.convolve(values, np.ones(min(256, len(values))), "valid") / min(256, len(values))
        over.plot(np.arange(len(mean)) + (len(values) - len(mean)) // 2, mean, linewidth=1.2)
        over.set(xlabel="scored position", ylabel=f"{name}, nats")
        over.set_yscale("symlog", linthresh=1e-4)
        share.plot(np.sort(values)[::-1], np.arange(1, len(values) + 1) / len(values))
        share.set(xlabel=f"{name}, nats", ylabel="share of positions at least this far", yscale="log")
    figure.suptitle(f"A: {a}\nB: {b}", fontsize=9, parse_math=False)
    save_figure(figure, path)
