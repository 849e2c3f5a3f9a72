"""Compiled graphs on disk: a file an executable, in the user's cache folder.

A file is named by all that its machine code depends on, and begins with a digest of the rest, so nothing
that was damaged, or made for another machine or version, reaches the loader. Whatever goes wrong here costs a
compilation and one warning, never an answer. The files are machine code: who can write the folder can run
code as its user.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
from pathlib import Path

import jax
from jax.experimental import serialize_executable

from synapse_jax.errors import InputError
from synapse_jax.graph.fingerprint import Identity
from synapse_jax.io.atomic_file import atomic_path
from synapse_jax.io.fetch import cache_folder
from synapse_jax.io.quoting import shown_path
from synapse_jax.spec.digest import canonical_json, sha256_text

VARIABLE = "SYNAPSE_GRAPH_CACHE"
"""Environment variable: another folder, or `off`."""
LIMIT_BYTES = 1 << 30
"""Most bytes in the folder: the files that were not used for longest go first."""

_FORMAT = b"synapse graph 1\n"
_HEAD = len(_FORMAT) + 32
_SUFFIX = ".graph"
_warned: set[Path] = set()


def graph_folder() -> Path | None:
    """Where compiled graphs are kept, or None where they are not."""
    given = os.environ.get(VARIABLE, "")
    if given == "off":
        return None
    return Path(given).expanduser() if given else cache_folder() / "graphs"


class GraphStore:
    """Executables in a folder, which is made when the first is kept.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path):
        self._folder = folder

    def holds(self, executable: Identity, device: jax.Device) -> bool:
        """Whether there is a file of an executable; it may still turn out to be damaged."""
        return self._path(executable, device).is_file()

    def load(
        self, executable: Identity, lowered: jax.stages.Lowered, device: jax.Device
    ) -> jax.stages.Compiled | None:
        """The executable, ready to run on the device, or None: it is not there, or cannot be used.

        Args:
            executable: its identity.
            lowered: what it was compiled from; gives the trees of arguments and results.
            device: where it is to run.
        """
        path = self._path(executable, device)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"{shown_path(path)}: cannot be read: {error.strerror}")
            return None
        if data[:_HEAD] != _head(path, data[_HEAD:]):
            self._warn(f"{shown_path(path)}: is damaged; its graph is compiled again")
            return None
        try:
            compiled = serialize_executable.deserialize_and_load(
                data[_HEAD:], lowered.in_tree, lowered.out_tree, execution_devices=[device]
            )
        except Exception as error:  # whatever the runtime has against it
            self._warn(f"{shown_path(path)}: is refused here, its graph is compiled again: {_line(error)}")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return compiled

    def save(self, executable: Identity, compiled: jax.stages.Compiled, device: jax.Device) -> None:
        """Keeps an executable, whole or not at all. Where that cannot be done there is a warning."""
        path = self._path(executable, device)
        try:
            payload, _, _ = serialize_executable.serialize(compiled)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_path(path) as part:
                part.write_bytes(_head(path, payload) + payload)
            self._make_room()
        except (OSError, InputError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error).rpartition(": ")[2]
            self._warn(f"{shown_path(self._folder)}: compiled graphs cannot be kept: {reason}")
        except Exception as error:  # an executable that this runtime cannot write down
            self._warn(f"a compiled graph cannot be kept: {_line(error)}")

    def _path(self, executable: Identity, device: jax.Device) -> Path:
        key = sha256_text(canonical_json([executable.digest, device.id, _processor()]))
        return self._folder / f"{key}{_SUFFIX}"

    def _make_room(self) -> None:
        """Removes what was not used for longest, until the rest is within the limit."""
        files = [(entry.stat(), entry.path) for entry in os.scandir(self._folder) if entry.is_file()]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda file: file[0].st_mtime):
            if total <= LIMIT_BYTES:
                return
            # Another process may have been faster.
            Path(path).unlink(missing_ok=True)
            total -= status.st_size

    def _warn(self, line: str) -> None:
        """Says what is wrong with the folder, once in a process."""
        if self._folder not in _warned:
            _warned.add(self._folder)
            logging.getLogger("synapse_jax").warning(
                "graph cache: %s; %s names another folder, or off", line, VARIABLE
            )


def _head(path: Path, payload: bytes) -> bytes:
    """What a file begins with: its name is in the digest, so that no file stands for another."""
    return _FORMAT + hashlib.sha256(path.name.encode() + payload).digest()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _processor() -> str:
    """The processor's model: the compiler tunes for it, beyond the features that an identity holds."""
    info = Path("/proc/cpuinfo")
    named = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
        return " ".join(line for line in lines if line.startswith(named))
    return f"{platform.machine()} {platform.processor()}"
