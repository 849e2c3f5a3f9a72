"""Progress of long work on standard error."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

LINE_EVERY_S = 10.0
DOWNLOAD_BAR = {"auto": None, "bar": True, "lines": False, "none": False}
"""Whether a download shows a bar, by `--progress`; None: on a terminal."""


class Progress:
    """Shows (done, total) as a bar, as plain lines, or not at all.

    Lines come first, last, and every 10 s. Call an object with (done, total); it ends itself at done = total.
    What `detail` returns is added to each line.
    """

    def __init__(
        self,
        mode: str,
        label: str,
        unit: str,
        detail: Callable[[], str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        if mode == "auto":
            mode = "bar" if sys.stderr.isatty() else "lines"
        self._mode, self._label, self._unit, self._clock = mode, label, unit, clock
        self._detail = detail
        self._bar: Any = None
        self._started: float | None = None
        self._last = 0.0

    def __call__(self, done: int, total: int) -> None:
        if self._mode == "bar":
            self._show_bar(done, total)
        elif self._mode == "lines":
            self._show_line(done, total)

    def close(self) -> None:
        """Ends a bar that did not reach its end."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _show_bar(self, done: int, total: int) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=self._label, unit=self._unit, unit_scale=True, file=sys.stderr)
        if self._detail:
            self._bar.set_postfix_str(self._detail(), refresh=False)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def _show_line(self, done: int, total: int) -> None:
        now = self._clock()
        if self._started is None:
            self._started = now
        elif done < total and now - self._last < LINE_EVERY_S:
            return
        self._last = now
        seconds = now - self._started
        left = f", {seconds / done * (total - done):.0f} s left" if 0 < done < total else ""
        detail = f", {self._detail()}" if self._detail else ""
        print(
            f"{self._label}: {done}/{total} {self._unit}, {seconds:.1f} s{left}{detail}",
            file=sys.stderr,
            flush=True,
        )


def say(mode: str) -> Callable[[str], None]:
    """Prints a line of news on standard error, unless progress is switched off."""
    if mode == "none":
        return lambda line: None
    return lambda line: print(f"synapse: {line}", file=sys.stderr, flush=True)


class _Warnings(logging.Handler):
    """Shows what the engine warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def show_warnings() -> None:
    """Shows warnings that the engine gives to its logger as a command's own."""
    logger = logging.getLogger("synapse_jax")
    if not any(isinstance(handler, _Warnings) for handler in logger.handlers):
        logger.addHandler(_Warnings(logging.WARNING))


def warn(line: str) -> None:
    """Prints a warning on standard error: those are never switched off."""
    print(f"synapse: warning: {line}", file=sys.stderr, flush=True)
