"""Downloading with pip: verified, visible, ended when interrupted. A fake pip answers."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from synapse_jax.errors import RunError
from synapse_jax.io import wheels
from synapse_jax.io.wheels import Wheel, download_wheel

FAKE_PIP = """#!{python}
import os, pathlib, sys, time
assert sys.argv[1:4] == ["-m", "pip", "download"], sys.argv
target = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
print("on standard output")
{body}
"""


def _fake_pip(monkeypatch, tmp_path, body: str) -> None:
    program = tmp_path / "python"
    program.write_text(FAKE_PIP.format(python=sys.executable, body=body))
    program.chmod(0o755)
    monkeypatch.setattr(wheels.sys, "executable", str(program))


def _download(tmp_path, log=lambda line: None) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    wheel = Wheel("w==1", 4000, hashlib.sha256(b"w" * 4000).hexdigest())
    return download_wheel(wheel, folder, log=log, bar=False)


def test_pip_download_is_verified_and_shown_in_lines(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(wheels, "_LINE_SECONDS", 0.2)
    _fake_pip(
        monkeypatch,
        tmp_path,
        "pathlib.Path(os.environ['TMPDIR'], 'x').write_bytes(b'w' * 2000); time.sleep(1.5)\n"
        "(target / 'w-1-py3-none-any.whl').write_bytes(b'w' * 4000)",
    )
    lines: list[str] = []
    assert _download(tmp_path, lines.append).read_bytes() == b"w" * 4000
    assert lines[0].startswith("downloading w==1")
    assert any("MB of" in line for line in lines[1:-1])
    assert lines[-1] == "downloaded w==1"
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit('Looking\\nERROR: No matching distribution\\nnote')", "exit code 1: ERROR: No matching"),
        ("sys.exit('python: No module named pip')", "No module named pip"),
        ("pass", "pip left 0 wheels"),
        ("(target / 'w.whl').write_bytes(b'other')", "w.whl has sha256 .* expected"),
    ],
)
def test_pip_failures_are_named(monkeypatch, tmp_path, body, message):
    _fake_pip(monkeypatch, tmp_path, body)
    with pytest.raises(RunError, match=f"^w==1: .*{message}") as caught:
        _download(tmp_path)
    assert "\n" not in str(caught.value)


def test_interrupt_ends_pip(monkeypatch, tmp_path):
    body = "new = target / 'new'; new.write_text(str(os.getpid())); new.rename(target / 'id'); time.sleep(60)"
    _fake_pip(monkeypatch, tmp_path, body)
    pid_file = tmp_path / "work" / "wheel" / "id"

    def interrupt(seconds):
        if pid_file.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(wheels.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _download(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
