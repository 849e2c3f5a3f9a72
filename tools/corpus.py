"""Fetches the text that parity measurements use, and prints its path.

Long prose about a program library: the documentation strings of five modules of
SQLAlchemy 2.0.36 (MIT licence), 333,546 bytes, 78,977 SmolLM2 tokens. It is
pinned byte for byte, so numbers measured on it can be compared for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

try:
    from synapse_jax.errors import InputError, RunError
except ModuleNotFoundError:  # called from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from synapse_jax.errors import InputError, RunError
from synapse_jax.io.fetch import WheelFile, cache_folder, fetch_file, print_line
from synapse_jax.io.wheels import Wheel

_SQLALCHEMY = Wheel(
    requirement="SQLAlchemy==2.0.36",
    size=1883787,
    sha256="fddbe92b4760c6f5d48162aef14824add991aeda8ddadb3c31d56eb15ca69f8e",
)
_MODULES = (
    "sqlalchemy/ext/compiler.py",
    "sqlalchemy/orm/_orm_constructors.py",
    "sqlalchemy/orm/events.py",
    "sqlalchemy/sql/_elements_constructors.py",
    "sqlalchemy/sql/events.py",
)
CORPUS = WheelFile(
    members=tuple((_SQLALCHEMY, module) for module in sorted(_MODULES)),
    size=333546,
    sha256="81f179a0a12ab85adadd43fb958164fb5056645b656520fa20ddbc7ea30d377f",
)


def corpus_path(*, log: Callable[[str], None] = print_line) -> Path:
    """Path of the text in the cache, UTF-8; fetched on first use."""
    return fetch_file(CORPUS, cache_folder() / "texts" / "sqlalchemy-2.0.36.txt", log=log, bar=False)


if __name__ == "__main__":
    try:
        print(corpus_path())
    except (InputError, RunError) as error:
        sys.exit(f"corpus: error: {error}")
