"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

# The tests are about the CPU backend, also where there is a GPU. Types and ranks are never promoted silently.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
# Compilations are counted and graphs are compared as they are compiled here.
os.environ["SYNAPSE_GRAPH_CACHE"] = "off"

import hypothesis
import pytest

from synapse_jax.io.catalog import CATALOG, is_here, resolve_model

# The same examples in every run, and no failure because a machine was busy.
hypothesis.settings.register_profile("repository", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repository")


MOST_MAPPINGS = 20_000
"""Linux gives a process 65,530, each compiled graph takes some tens, and the compiler dies without one."""


@pytest.fixture(autouse=True, scope="module")
def _forget_graphs():
    """After a file that leaves very many graphs behind, all of them go."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") < MOST_MAPPINGS:
        return
    import jax

    from synapse_jax.graph.compile import GRAPHS

    GRAPHS.clear()
    for name, module in list(sys.modules.items()):
        if name.startswith(("tests.", "synapse_jax.")):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
    jax.clear_caches()
    gc.collect()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="score the whole parity text: about 20 minutes more")
    parser.addoption(
        "--offline", action="store_true", help="leave out what needs a download that is not in the cache"
    )


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of a test was asked for."""
    return request.config.getoption("--full")


@pytest.fixture(scope="session")
def own_path() -> Path:
    """The small decoder that comes with the package: always there."""
    return resolve_model("synapse-python-3m")


@pytest.fixture(scope="session")
def smol_path(request: pytest.FixtureRequest) -> Path:
    """SmolLM2-135M-Instruct Q4_1 in the user's cache; fetched on first use."""
    return _fetched(request, "smollm2-135m-instruct")


@pytest.fixture(scope="session")
def gemma_path(request: pytest.FixtureRequest) -> Path:
    """Gemma-3-270M Q4_K_M in the user's cache; fetched on first use."""
    return _fetched(request, "gemma-3-270m")


def _fetched(request: pytest.FixtureRequest, name: str) -> Path:
    if request.config.getoption("--offline") and not is_here(CATALOG[name]):
        pytest.skip(f"--offline, and {name} is not in the cache")
    return resolve_model(name)
