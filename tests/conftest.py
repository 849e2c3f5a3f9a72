"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

# The tests are about the CPU backend, also where there is a GPU. Types and ranks are never promoted silently.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
# Compilations are counted and graphs are compared as they are compiled here.
os.environ["SYNAPSE_GRAPH_CACHE"] = "off"

import hypothesis
import pytest

from synapse_jax.io.catalog import resolve_model

# The same examples in every run, and no failure because a machine was busy.
hypothesis.settings.register_profile("repository", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repository")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="score the whole parity text: about 20 minutes more")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of a test was asked for."""
    return request.config.getoption("--full")


@pytest.fixture(scope="session")
def smol_path() -> Path:
    """SmolLM2-135M-Instruct Q4_1 in the user's cache; fetched on first use."""
    return resolve_model("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma-3-270M Q4_K_M in the user's cache; fetched on first use."""
    return resolve_model("gemma-3-270m")
