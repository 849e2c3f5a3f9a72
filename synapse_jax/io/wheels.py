"""Downloads pinned wheels with pip, so that the user's own index settings apply. Nothing is installed."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from synapse_jax.errors import RunError

_LINE_SECONDS = 5.0
_POLL_SECONDS = 0.1
_HASH_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Wheel:
    """One pure-Python wheel, pinned."""

    requirement: str
    """`name==version`."""
    size: int
    """Bytes of the wheel file."""
    sha256: str
    """Digest of the wheel file, hex."""


def download_wheel(wheel: Wheel, folder: Path, *, log: Callable[[str], None], bar: bool) -> Path:
    """Downloads a wheel into a folder that the caller owns and removes.

    Args:
      wheel: What to download.
      folder: An empty folder on the disk that will hold the result.
      log: Receives plain progress lines: the first, one every 5 s, the last.
      bar: Show pip's own output on standard error instead of the lines.

    Returns:
      Path of the verified wheel, inside `folder`.

    Raises:
      RunError: no pip, pip failed, or the file is not the pinned one.
    """
    target, scratch = folder / "wheel", folder / "pip"
    target.mkdir()
    scratch.mkdir()
    log(f"downloading {wheel.requirement} ({_megabytes(wheel.size)})")
    _run_pip(wheel, target, scratch, log, bar)
    found = sorted(target.glob("*.whl"))
    if len(found) != 1:
        raise RunError(f"{wheel.requirement}: pip left {len(found)} wheels instead of one")
    actual = hash_file(found[0])
    if actual != wheel.sha256:
        raise RunError(f"{wheel.requirement}: {found[0].name} has sha256 {actual}, expected {wheel.sha256}")
    log(f"downloaded {wheel.requirement}")
    return found[0]


def hash_file(path: Path) -> str:
    """sha256 of a file, hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_HASH_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _run_pip(wheel: Wheel, target: Path, scratch: Path, log: Callable[[str], None], bar: bool) -> None:
    # `any` asks for the pure wheel where a project also has compiled ones.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--platform", "any", "--dest", str(target), wheel.requirement]
    # pip's partial file is watched in its temporary folder: that works with every pip, unlike its bars.
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    report = scratch.parent / "pip.log"
    with open(report, "wb") as output:
        # Standard output belongs to results, so pip's goes to standard error.
        stream = 2 if bar else output
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
        try:
            spoken = time.monotonic()
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                if time.monotonic() - spoken >= _LINE_SECONDS:
                    spoken = time.monotonic()
                    if not bar:
                        done = min(_folder_bytes(scratch), wheel.size)
                        log(
                            f"downloading {wheel.requirement}: {_megabytes(done)} of {_megabytes(wheel.size)}"
                        )
        finally:
            # An interrupt must not leave pip running on a folder that is about to go.
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode:
        raise RunError(
            f"{wheel.requirement}: pip download failed with exit code {process.returncode}{_reason(report)}"
        )


def _reason(report: Path) -> str:
    """pip's own last error line, as the end of a message."""
    lines = [line.strip() for line in report.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") or "No module named pip" in line]
    return f": {(errors or lines)[-1][:300]}" if lines else ""


def _folder_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue  # pip moved or removed it meanwhile
    return total


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
