"""The plot of a quality run: a length × depth heat map a task. The library is the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synapse_jax.evals.plots import save_figure


def plot_quality(record: Mapping[str, Any], path: str) -> None:
    """Draws the mean score of every length and depth, a panel a task.

    Args:
        record: of `synapse quality`.
        path: ends in .png, .svg or .pdf.

    Raises:
        RunError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    found = record["result"]["cells"]
    tasks = list(dict.fromkeys(cell["task"] for cell in found))
    lengths = len({cell["length"] for cell in found})
    figure = Figure(figsize=(max(4.0, 1.1 * lengths + 2.2) * len(tasks), 4.2), layout="constrained")
    image = None
    for column, task in enumerate(tasks, 1):
        axes = figure.add_subplot(1, len(tasks), column)
        score_DL, counts, depths, columns = grid([cell for cell in found if cell["task"] == task])
        image = axes.imshow(score_DL, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
        axes.set_xticks(range(len(columns)), [f"{length:,}" for length in columns])
        axes.set_yticks(range(len(depths)), ["all" if d is None else f"{d:g}" for d in depths])
        axes.set(title=task, xlabel="length, tokens", ylabel="depth")
        for row, line in enumerate(counts):
            for place, text in enumerate(line):
                axes.text(place, row, text, ha="center", va="center", fontsize=8)
    if image is not None:
        figure.colorbar(image, ax=figure.axes, label="score")
    runtime = record["runtime"]
    title = (
        f"{record['model']['name']}: {runtime['precision']}, KV {runtime['kv_dtype']}, {runtime['attention']}"
    )
    figure.suptitle(title, fontsize=9, parse_math=False)
    save_figure(figure, path)


def grid(
    cells: Sequence[Mapping[str, Any]],
) -> tuple[np.ndarray, list[list[str]], list[float | None], list[int]]:
    """One task's cells as a table.

    Returns:
        Scores float64 [depths, lengths]; what was right of how many, as text; depths and lengths, ascending.
    """
    lengths = sorted({cell["length"] for cell in cells})
    depths = sorted({cell["depth"] for cell in cells}, key=lambda depth: (depth is not None, depth or 0.0))
    score_DL = np.full((len(depths), len(lengths)), np.nan)
    texts = [["" for _ in lengths] for _ in depths]
    for cell in cells:
        row, column = depths.index(cell["depth"]), lengths.index(cell["length"])
        score_DL[row, column] = cell["score"]
        texts[row][column] = f"{cell['right'] + cell['mixed']}/{cell['cases']}"
    return score_DL, texts, depths, lengths
