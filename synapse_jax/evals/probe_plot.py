"""The plot of copy probes: gain by depth. The library is the extra `plot`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from synapse_jax.evals.plots import save_figure
from synapse_jax.evals.probe_result import NOTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REACH_LINES = {"one_layer": ("--", "one layer"), "stacked": (":", "all layers")}
"""Line style and name of each reach of a window."""


def plot_probes(probes: Mapping[str, Mapping[str, Any]], path: str) -> None:
    """Draws gain by depth with its 95 % interval, several probes in one plot.

    Vertical lines mark the depth L − 16 − reach: of needles before it no token is in reach of a window's
    exact keys, of one layer (dashed) or of all (dotted). The first token of the copy is predicted from
    position L − 9, and a needle at that depth ends `reach` before it. A reach of the whole block has no line;
    the legend tells.

    Args:
        probes: records of `synapse probe` by the name that each has in the legend.
        path: ends in .png, .svg or .pdf.

    Raises:
        RunError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(0, color="0.7", linewidth=0.8)
    for index, (label, record) in enumerate(probes.items()):
        _draw(axes, label, record["result"], f"C{index}")
    axes.set(xlabel="depth of the needle, tokens", ylabel="gain a token of the copy, nats (mean, 95 %)")
    # Below the axes: beside lines and bands of several probes there is no room in them.
    for text in figure.legend(fontsize=8, loc="outside lower center", ncols=3).get_texts():
        text.set_parse_math(False)
    axes.set_title(f"Copy probe\n{textwrap.fill(NOTE, 90, break_on_hyphens=False)}", fontsize=9)
    save_figure(figure, path)


def _draw(axes: Axes, label: str, result: Mapping[str, Any], color: str) -> None:
    depths = [row["depth"] for row in result["depths"]]
    gains = [row["gain"] for row in result["depths"]]
    nearest = result["length"] - 2 * result["needle_tokens"]
    reach = result["reach"] or {}
    marks = {name: nearest - tokens for name, tokens in reach.items()}
    covering = [REACH_LINES[name][1] for name, depth in marks.items() if depth <= 0]
    note = f" (reach of {' and of '.join(covering)} covers the block)" if covering else ""
    axes.plot(depths, [gain["mean"] for gain in gains], "o-", color=color, label=label + note, markersize=4)
    if all(gain["low"] is not None for gain in gains):
        low, high = ([gain[end] for gain in gains] for end in ("low", "high"))
        axes.fill_between(depths, low, high, color=color, alpha=0.2, linewidth=0)
    for name, depth in marks.items():
        if depth > 0:
            style, shown = REACH_LINES[name]
            text = f"{label}: reach of {shown}, {reach[name]}"
            axes.axvline(depth, color=color, linestyle=style, linewidth=1, label=text)
