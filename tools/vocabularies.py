"""Fetches the vocabularies that llama.cpp tests its tokenizers with, and prints their folder.

They are GGUF files without weights, each with texts (`.inp`) and the ids that
the model's own tokenizer gives them (`.out`). The source package of
llama-cpp-python carries them (MIT licence; 76.6 MB, of which 60 MB are kept).

pip asks a source package's build backend for its metadata before it gives the
file away. Nothing of the package runs here: a backend of our own, which only
writes that metadata, takes its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

try:
    from synapse_jax.errors import RunError
except ModuleNotFoundError:  # called from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from synapse_jax.errors import RunError
from synapse_jax.io.fetch import cache_folder, print_line
from synapse_jax.io.wheels import hash_file

VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
NAMES = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
    "llama-bpe", "llama-spm", "mpt",
    "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip
"""All that have texts, but the two of BERT, which this project does not read."""

_BACKEND = f"""
import os

def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "llama_cpp_python-{VERSION}.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: llama-cpp-python\\nVersion: {VERSION}\\n")
    return name
"""


def cached_folder() -> Path:
    """Where they are, or will be; the folder appears only when it is whole."""
    return cache_folder() / "vocabularies" / f"llama-cpp-python-{VERSION}"


def vocabulary_folder(*, log: Callable[[str], None] = print_line) -> Path:
    """A folder in the cache with `ggml-vocab-NAME.gguf`, `.gguf.inp` and `.gguf.out`; filled on first use.

    Raises:
      RunError: pip failed, or the package is not the pinned one.
    """
    target = cached_folder()
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as work:
        log(f"downloading the source package of llama-cpp-python {VERSION} (76.6 MB)")
        package = _download(Path(work))
        if (actual := hash_file(package)) != SHA256:
            raise RunError(f"{package.name} has sha256 {actual}, expected {SHA256}")
        _extract(package, Path(work) / "whole")
        try:
            os.replace(Path(work) / "whole", target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    log(f"saved {target}")
    return target


def _download(work: Path) -> Path:
    for name in ("backend/scikit_build_core", "package", "scratch"):
        (work / name).mkdir(parents=True)
    (work / "backend" / "scikit_build_core" / "__init__.py").touch()
    (work / "backend" / "scikit_build_core" / "build.py").write_text(_BACKEND)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation"]
    command += ["--no-binary", ":all:", "--dest", str(work / "package"), f"llama-cpp-python=={VERSION}"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(work / "backend"),
        "TMPDIR": str(work / "scratch"),
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = sorted((work / "package").iterdir())
    if done.returncode or len(found) != 1:
        last = (done.stdout.strip().splitlines() or [""])[-1]
        raise RunError(f"pip download of llama-cpp-python failed with exit code {done.returncode}: {last}")
    return found[0]


def _extract(package: Path, target: Path) -> None:
    target.mkdir()
    wanted = {f"ggml-vocab-{name}.gguf{end}" for name in NAMES for end in ("", ".inp", ".out")}
    with tarfile.open(package) as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            if folder.endswith("/llama.cpp/models") and name in wanted and member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                with content, open(target / name, "wb") as file:
                    shutil.copyfileobj(content, file)
                wanted.remove(name)
    if wanted:
        raise RunError(f"{package.name} lacks {', '.join(sorted(wanted))}")


if __name__ == "__main__":
    try:
        print(vocabulary_folder())
    except RunError as error:
        sys.exit(f"vocabularies: error: {error}")
