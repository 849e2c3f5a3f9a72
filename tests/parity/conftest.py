"""Fixtures of the parity tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.tiny_sessions import Sessions


@pytest.fixture(scope="session")
def sessions(tmp_path_factory) -> Iterator[Sessions]:
    """Sessions of the TINY cases, shared by all tests: equal graphs compile once."""
    with contextlib.ExitStack() as open_files:
        yield Sessions(tmp_path_factory.mktemp("tiny"), open_files)
