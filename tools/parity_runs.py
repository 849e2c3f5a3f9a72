"""The runs whose figures are compared with llama.cpp's: one table for the tools and the tests."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "parity.json"
"""llama.cpp's figures, written by tools/update_parity_golden.py."""


@dataclasses.dataclass(frozen=True)
class ParityRun:
    """One perplexity of the parity text (tools/corpus.py)."""

    model: str
    """Catalog name."""
    n_ctx: int
    chunks: int | None = None
    """Chunks that are scored; None is the whole text."""
    rope: str | None = None
    """`--rope-scaling`; None is the file's own."""
    tolerance: float = 5e-5
    """Largest relative difference of a running figure. Above 8,192 positions llama.cpp's float32 angles
    drift, so more is allowed there."""
    suite_chunks: int = 0
    """Chunks that the test suite scores; 0 leaves the run to tools/parity.py."""

    @property
    def name(self) -> str:
        """Name of the run in the golden and of its files."""
        rope = "" if self.rope is None else "-" + self.rope.replace(":", "-")
        return f"{self.model}{rope}-{self.n_ctx}"

    @property
    def llama_flags(self) -> list[str]:
        """The same run for llama-perplexity, without model and text."""
        flags = ["-c", str(self.n_ctx), "-b", str(self.n_ctx)]
        if self.chunks is not None:
            flags += ["--chunks", str(self.chunks)]
        if self.rope is not None:
            kind, factor, *original = self.rope.split(":")
            flags += ["--rope-scaling", kind, "--rope-scale", factor]
            flags += [word for length in original for word in ("--yarn-orig-ctx", length)]
        return flags

    @property
    def score_flags(self) -> list[str]:
        """The same run for `synapse score`, without the text."""
        flags = ["--model", self.model, "--context", str(self.n_ctx)]
        if self.chunks is not None:
            flags += ["--chunks", str(self.chunks)]
        return flags + ([] if self.rope is None else ["--rope-scaling", self.rope])


SMOL, GEMMA = "smollm2-135m-instruct", "gemma-3-270m"
RUNS = (
    ParityRun(SMOL, 512, tolerance=2e-5, suite_chunks=3),
    ParityRun(SMOL, 2048, tolerance=2e-5, suite_chunks=1),
    ParityRun(SMOL, 129, tolerance=2e-5, suite_chunks=8),
    ParityRun(SMOL, 512, 40, rope="yarn:4:8192", suite_chunks=2),
    ParityRun(SMOL, 512, 40, rope="linear:2", suite_chunks=2),
    ParityRun(GEMMA, 512, 24, suite_chunks=2),
    ParityRun(SMOL, 16384, 2, rope="yarn:4:8192", tolerance=2e-4),
    ParityRun(GEMMA, 1024, 12),
    ParityRun(GEMMA, 4096, 3),
    ParityRun(GEMMA, 16384, 1, tolerance=2e-4),
)


def read_golden() -> dict[str, Any]:
    """The golden as it was written."""
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


def worst_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Largest relative difference of running figures; llama.cpp prints four decimals of its own."""
    return max(abs(a / b - 1) for a, b in zip(ours, theirs, strict=True))
