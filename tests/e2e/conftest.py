"""The command line in this process, and the small models it runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synapse_jax.cli.main import main
from tests.tiny import write_tiny

CONTEXT = 64
"""Trained window of the `tiny` models."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        """The one JSON object on standard output of a command that went well."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, "standard output holds more than one line"
        return json.loads(self.out, parse_constant=_refuse)

    @property
    def error(self) -> str:
        """The one line on standard error of a command that failed."""
        lines = self.err.splitlines()
        assert "Traceback" not in self.err
        assert [line for line in lines if line.startswith("synapse: error: ")] == lines[-1:], self.err
        return lines[-1]

    @property
    def refusal(self) -> str:
        """The only line that bad usage or input leaves: nothing ran before it."""
        assert (self.code, self.out) == (2, ""), (self.code, self.out, self.err)
        assert self.err.count("\n") == 1, self.err
        return self.error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


Command = Callable[..., Finished]
"""Runs a command line; arguments are turned to text."""


@pytest.fixture
def synapse(capfd) -> Command:
    """The command line, run in this process: equal graphs compile once for all tests."""

    def run(*argv: object) -> Finished:
        capfd.readouterr()
        code = main([str(word) for word in argv])
        return Finished(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A llama of two layers with a window of 64; its vocabulary adds no BOS."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny(path, context=CONTEXT)
    return path


@pytest.fixture(scope="session")
def tiny_bos(tmp_path_factory) -> Path:
    """The same weights under a vocabulary that adds BOS."""
    path = tmp_path_factory.mktemp("models") / "tiny_bos.gguf"
    write_tiny(path, context=CONTEXT, mutate=_add_bos)
    return path


def _add_bos(metadata, tensors) -> None:
    metadata["tokenizer.ggml.add_bos_token"] = True


def some_ids(count: int, *, seed: int = 3) -> list[int]:
    """Token ids of the small vocabulary, the same in every run."""
    state, ids = seed, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append(state // 65536 % 256)
    return ids


def as_argument(ids: list[int]) -> str:
    """Ids as `--tokens` takes them."""
    return " ".join(map(str, ids))
