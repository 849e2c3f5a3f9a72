"""Hostile files through the real command: exit code, one line, time, memory (cases 18-20, 28, 46, 52)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import hostile_safetensors
from tests.e2e.conftest import as_argument, some_ids
from tests.hostile_gguf import CASES, Case

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked and waited for")

# The code under test, wherever the package is installed from.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
ARGUMENTS = {
    "inspect": ["--json"],
    "tokenize": ["--prompt", "x"],
    "score": ["--tokens", as_argument(some_ids(32)), "--context", "16"],
}
# One process a run, forked from one that has imported what all of them import, so that only its own work is
# counted. What it has in memory counts in full, the imports too.
SERVER = """
import importlib, json, os, resource, sys
from synapse_jax.cli.main import console_main
importlib.import_module("synapse_jax.cli.inspect")
importlib.import_module("synapse_jax.cli.tokenize")
for line in sys.stdin:
    argv = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv[1:] = argv
        code = 99
        try:
            console_main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        with open("jax", "w") as file:
            file.write(str("jax" in sys.modules))
        os._exit(code)
    _, status, usage = os.wait4(pid, 0)
    answer = [os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss]
    for name in ("out", "err", "jax"):
        with open(name, encoding="utf-8") as file:
            answer.append(file.read())
    print(json.dumps(answer), flush=True)
"""
# What a bare `synapse --help` takes; measured from a small process, whose peak its child starts with.
HELP = """
import os, sys
pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "synapse_jax", "--help"], os.environ)
_, status, usage = os.wait4(pid, 0)
print(status, usage.ru_maxrss)
"""


class Server:
    """Runs commands, one after the other, each in a process of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        bare = subprocess.run(
            [sys.executable, "-S", "-c", HELP], env=ENVIRONMENT, capture_output=True, text=True, check=True
        )
        status, self.bare = map(int, bare.stdout.split()[-2:])
        assert status == 0
        self.worst = {"seconds": (0.0, ""), "megabytes": (0.0, "")}
        """Largest figures so far and whose they are, for the measurements of BUILD.md."""

    def run(self, command: str, path: Path) -> tuple[int, str, str]:
        """Exit code and both outputs; asserts what holds for every file."""
        # Other processes on the machine only add to processor time: the least of a few runs counts.
        for _ in range(4):
            code, seconds, peak, out, err, jax = self._run_once(command, path)
            if seconds < 2:
                break
        more = (peak - self.bare) * (1 if sys.platform == "darwin" else 1024) / 1e6
        for what, figure in (("seconds", seconds), ("megabytes", more)):
            self.worst[what] = max(self.worst[what], (figure, f"{command} {path.name}"))
        assert seconds < 2, f"{seconds} s of processor time"
        assert more < 200, f"{more} MB above a bare --help"
        assert jax == "False", "jax was imported"
        assert "Traceback" not in err
        return code, out, err

    def _run_once(self, command: str, path: Path) -> list:
        assert self.process.stdin is not None and self.process.stdout is not None
        argv = [command, "--model", str(path), *ARGUMENTS[command]]
        self.process.stdin.write(json.dumps(argv) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def refusal(self, command: str, path: Path) -> str:
        """The one line with which a file is refused."""
        code, out, err = self.run(command, path)
        assert (code, out, err.count("\n")) == (2, "", 1), (code, out, err)
        assert err.startswith(f"synapse: error: {path}: ") and err[:-1].isprintable(), err
        return err

    def inspect(self, path: Path) -> list[str]:
        """The problems that `inspect` shows of a file that it takes."""
        code, out, err = self.run("inspect", path)
        assert (code, err) == (0, ""), (code, err)
        return json.loads(out)["result"]["problems"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.process.communicate()
    assert server.process.returncode == 0
    print(f"\nworst of the hostile files: {server.worst}")


def has_line(problems: list[str], kind: str, words: tuple[str, ...]) -> bool:
    return any(line.startswith(kind) and all(word in line for word in words) for line in problems)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_hostile_gguf(server, tmp_path, case: Case):
    path = tmp_path / f"{case.name.replace('/', ' ')}.gguf"
    path.write_bytes(case.make())
    if case.note:
        problems = server.inspect(path)
        if case.words:
            assert has_line(problems, "", case.words), problems
        if case.part == "vocabulary":
            code, _, err = server.run("tokenize", path)
            assert code == 0 and all(word in err for word in case.words)
        return
    if case.part == "header":
        message = server.refusal("inspect", path)
    else:
        message = server.refusal({"vocabulary": "tokenize", "weights": "score"}[case.part], path)
        problems = server.inspect(path)
        assert has_line(problems, "error: ", case.words), problems
    for word in case.words:
        assert word in message, message


@pytest.mark.parametrize(
    "case", hostile_safetensors.CASES, ids=[case.name for case in hostile_safetensors.CASES]
)
def test_hostile_safetensors(server, tmp_path, case: hostile_safetensors.Case):
    path = tmp_path / f"{case.name}.safetensors"
    path.write_bytes(case.content)
    if not case.note:
        message = server.refusal("inspect", path)
        for word in case.words:
            assert word in message, message
        return
    problems = server.inspect(path)
    assert has_line(problems, "warning: ", case.words) if case.words else problems == []


def test_tables_have_what_they_should():
    for cases, least in ((CASES, 60), (hostile_safetensors.CASES, 20)):
        assert len([case for case in cases if not case.note]) >= least
        assert len({case.name for case in cases}) == len(cases)


def test_inspect_shows_what_a_safetensors_file_has(synapse, tmp_path):
    path = tmp_path / "model.safetensors"
    header = {"__metadata__": {"k\x1b": "v\n"}, **hostile_safetensors.A, "b\n": hostile_safetensors.F8}
    header["b\n"] = {**header["b\n"], "data_offsets": [24, 28]}
    path.write_bytes(hostile_safetensors.build(header, bytes(28)))
    record = synapse("inspect", "--model", path, "--json").record
    assert record["model"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (record["model"]["name"], record["model"]["arch"]) == ("model", None)
    result = record["result"]
    assert result["shapes"] == {"a": ["F32", 2, 3], "b\n": ["F8_E4M3", 4]}
    assert (result["format"], result["tensors"], result["tensor_bytes"]) == ("safetensors", 2, 28)
    assert result["types"] == {"F32": 1, "F8_E4M3": 1} and result["metadata"] == {"k\x1b": "v\n"}
    table = synapse("inspect", "--model", path).out
    assert table.replace("\n", "").isprintable() and r"k\x1b" in table and "F32 [2, 3]" in table
    assert "cannot be read as float32: 1, first 'b\\n'" in table


def test_real_file_cut_by_a_megabyte(server, smol_path, tmp_path):
    path, size = tmp_path / "hostile.gguf", smol_path.stat().st_size - 1_000_000
    with smol_path.open("rb") as whole, path.open("wb") as cut:
        # Only the header is read: the rest may be a hole.
        cut.write(whole.read(4_000_000))
        cut.truncate(size)
    for command in ARGUMENTS:
        message = server.refusal(command, path)
        assert "truncated" in message and str(size) in message and "tensor '" in message


def test_a_server_that_measures_nothing_would_be_noticed(server, tiny: Any, tmp_path):
    """The same checks fail for a good model, and for one that takes too much."""
    with pytest.raises(AssertionError):
        server.refusal("inspect", tiny)
    assert server.inspect(tiny) == []
    path = tmp_path / "big.gguf"
    path.write_bytes(CASES[0].make())
    bare, worst = server.bare, dict(server.worst)
    server.bare -= 10**6
    try:
        with pytest.raises(AssertionError, match="MB above"):
            server.run("inspect", path)
    finally:
        server.bare, server.worst = bare, worst
