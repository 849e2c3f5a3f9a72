"""Sessions of the TINY cases and what other engines have recorded of them, for the parity tests."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import synapse_jax as sj
from tests.tiny_cases import context, positions, tokens, write_case

TOLERANCE = 1e-4
"""Largest difference of logits. The other engines are within 6e-5 of float64 themselves."""

_FILES = Path(__file__).parent / "golden"
GOLDEN = json.loads((_FILES / "tiny_logits.json").read_text())
with np.load(_FILES / "tiny_logits.npz") as _arrays:
    LOGITS: dict[str, np.ndarray] = dict(_arrays)


class Sessions:
    """Sessions of the cases, made when asked for. Pages of 16: the prompt fills two and a half."""

    def __init__(self, folder: Path, open_files: contextlib.ExitStack):
        self._folder, self._open_files = folder, open_files
        self.of = functools.cache(self._of)
        self.logits = functools.cache(self._logits)
        self._variants = 0

    def path(self, name: str) -> Path:
        """The file of a case."""
        path = self._folder / f"{name}.gguf"
        if not path.exists():
            write_case(path, name)
        return path

    def variant(self, name: str, mutate: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
        """The file of a case after a change of its metadata and tensors, by GGUF name."""
        self._variants += 1
        path = self._folder / f"changed-{self._variants}.gguf"
        write_case(path, name, mutate=mutate)
        return path

    def changed(self, name: str, mutate: Callable[[dict[str, Any], dict[str, Any]], None]) -> np.ndarray:
        """Logits of a case after such a change. Equal shapes compile nothing."""
        return self._open(name, self.variant(name, mutate)).logits(tokens(name))

    def _of(self, name: str) -> sj.Session:
        return self._open(name, self.path(name))

    def _logits(self, name: str) -> np.ndarray:
        return self.of(name).logits(tokens(name))

    def _open(self, name: str, path: Path) -> sj.Session:
        model = self._open_files.enter_context(sj.load(path))
        return sj.Session(model, sj.RuntimeProfile(context=context(name), page_size=16), ready=[])


def assert_close(logits: np.ndarray, expected: np.ndarray) -> None:
    """Asserts that logits differ by no more than the tolerance."""
    assert logits.shape == expected.shape
    difference = np.abs(logits - expected).max()
    assert difference <= TOLERANCE, f"logits differ by {difference:.2e}"


def largest_difference(logits: np.ndarray, name: str) -> float:
    """Between logits at every position and those that transformers has recorded of a case."""
    return float(np.abs(logits[positions(name)] - LOGITS[f"{name}/transformers"]).max())
