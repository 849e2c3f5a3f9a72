"""What only a process of its own shows: exit codes, signals, imports, locale, memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import metadata

import pytest

from tests import raw_gguf
from tests.e2e.conftest import CONTEXT, as_argument, some_ids
from tests.raw_gguf import Tensor
from tests.tiny import write_tiny

MODULE = [sys.executable, "-m", "synapse_jax"]


def finish(argv, **more):
    return subprocess.run([str(word) for word in argv], capture_output=True, timeout=300, **more)


@pytest.fixture(scope="module")
def vocabulary_only(tmp_path_factory):
    """A file with a tokenizer and no weights."""
    path = tmp_path_factory.mktemp("models") / "vocabulary.gguf"
    write_tiny(path, context=CONTEXT, mutate=lambda metadata, tensors: tensors.clear())
    return path


def test_console_script_and_module_are_the_command_line():
    (script,) = metadata.entry_points(group="console_scripts", name="synapse")
    assert script.value == "synapse_jax.cli.main:console_main"
    good, bad = finish([*MODULE, "score", "--help"]), finish([*MODULE, "score", "--contxt", 5])
    assert (good.returncode, good.stderr) == (0, b"") and b"--context" in good.stdout
    assert (bad.returncode, bad.stdout) == (2, b"") and bad.stderr.count(b"\n") == 1


def test_no_jax_where_no_device_is_needed(tiny, vocabulary_only, tmp_path):
    script = """
import json, sys
from synapse_jax.cli.main import main
seen = []
for argv in json.loads(sys.argv[1]):
    code = main(argv)
    seen.append((argv[0], code, sorted({"jax", "jaxlib", "flax"} & set(sys.modules))))
print(json.dumps(seen), file=sys.stderr)
"""
    file = ["--model", str(vocabulary_only), "--json"]
    ids = as_argument(some_ids(CONTEXT))
    commands = [
        ["inspect", *file],
        ["tokenize", *file, "--prompt", "hear the rain"],
        # Bad input is refused before a device is started.
        ["score", *file, "--tokens", ids, "--context", "32"],
        ["score", "--model", str(tiny), "--tokens", "1", "--context", "32"],
        ["score", "--model", str(tiny), "--tokens", ids, "--context", "32", "--chunks", "9"],
        ["score", "--model", str(tiny), "--tokens", ids, "--context", "999"],
        ["generate", "--model", str(tiny), "--tokens", ids, "--max-new-tokens", "2"],
        ["generate", "--model", str(tiny), "--prompt", ""],
    ]
    done = finish([sys.executable, "-c", script, json.dumps(commands)])
    seen = json.loads(done.stderr.splitlines()[-1])
    assert seen == [[argv[0], 0 if argv[0] in ("inspect", "tokenize") else 2, []] for argv in commands]
    inspected, tokenized = map(json.loads, done.stdout.splitlines())
    assert "holds a vocabulary and no weights" in inspected["result"]["problems"][0]
    assert inspected["result"]["tokenizer"]["vocab_size"] == 288
    assert len(tokenized["result"]["token_ids"]) > 5


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="peak memory of a child needs wait4")
def test_malformed_files_cost_neither_time_nor_memory(tiny, tmp_path):
    data = tiny.read_bytes()
    files = {
        "dims": raw_gguf.build(tensors=[Tensor(dims=(2**32, 2**31))]),
        "counts": raw_gguf.build(tensor_count=2**62, key_count=2**62),
        "array": raw_gguf.build(keys=[raw_gguf.array_key("a.b", raw_gguf.U64, 2**40)]),
        "offset": raw_gguf.build(tensors=[Tensor(offset=2**64 - 32)], data=bytes(128)),
        "cut": data[: len(data) // 2],
    }
    commands = [["--help"]]
    for name, content in files.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        commands.append(["score", "--model", str(path), "--tokens", "1 2 3 4", "--context", "4"])
    # Measured from a small process: a child starts with its parent's peak as its own.
    script = """
import json, os, resource, sys
seen = []
for argv in json.loads(sys.argv[1]):
    pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "synapse_jax", *argv], os.environ)
    _, status, usage = os.wait4(pid, 0)
    seen.append((os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss))
print(json.dumps(seen))
"""
    done = finish([sys.executable, "-S", "-c", script, json.dumps(commands)])
    (code, _, plain), *refused = json.loads(done.stdout.splitlines()[-1])
    unit = 1 if sys.platform == "darwin" else 1024
    assert code == 0 and done.stderr.count(b"\n") == len(files)
    for name, (code, seconds, peak) in zip(files, refused, strict=True):
        assert code == 2, name
        # Processor time: how long a busy machine lets it wait says nothing about the file.
        assert seconds < 2, name
        assert (peak - plain) * unit < 200e6, name


def test_results_do_not_depend_on_the_locale(synapse, tiny, tmp_path):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    text = tmp_path / "text"
    text.write_bytes("Київ — é".encode())
    given = ["--model", tiny, "--json", "--prompt", "Київ — é"]
    there = synapse("tokenize", "--model", tiny, "--json", "--text-file", text).record["result"]
    here = finish([*MODULE, "tokenize", *given], env=environment)
    assert json.loads(here.stdout)["result"] == there
    given += ["--max-new-tokens", "6"]
    there = synapse("generate", *given).record["result"]
    assert not there["text"].isascii()
    here = finish([*MODULE, "generate", *given], env=environment)
    assert (here.returncode, here.stdout.count(b"\n")) == (0, 1)
    assert json.loads(here.stdout.decode())["result"] == there


def test_bytes_that_are_not_utf8(tiny, tmp_path):
    argv = [os.fsencode(str(word)) for word in [*MODULE, "tokenize", "--json", "--prompt"]]
    bad = subprocess.run([*argv, b"caf\xe9", b"--model", os.fsencode(tiny)], capture_output=True)
    line = b"synapse: warning: --prompt: not valid UTF-8: byte 0xE9 at offset 3 of 4; "
    line += b"tokenized as llama.cpp does\n"
    assert (bad.returncode, bad.stderr) == (0, line)
    text = tmp_path / "text"
    text.write_bytes(b"caf\xe9")
    for environment in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        given = [*MODULE, "tokenize", "--json", "--text-file", text, "--model", tiny]
        file = finish([str(word) for word in given], env={**os.environ, **environment})
        assert json.loads(file.stdout)["result"] == json.loads(bad.stdout)["result"]
        assert file.stderr == line.replace(b"--prompt", os.fsencode(text))
    # A path may be any bytes: the record is UTF-8 all the same, and names it.
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.gguf")
    os.symlink(tiny, path)
    output = os.fsencode(tmp_path / "record")
    good = subprocess.run([*argv, b"x", b"--model", path, b"--output", output], capture_output=True)
    assert (good.returncode, good.stderr) == (0, b"")
    for record in (good.stdout, (tmp_path / "record").read_bytes()):
        assert os.fsencode(json.loads(record.decode())["model"]["path"]) == path


def test_control_tokens_are_parsed_where_asked(synapse, smol_path):
    given = ["tokenize", "--json", "--model", smol_path, "--prompt", "<|im_start|>hi<|im_end|>"]
    ids = synapse(*given).record["result"]["token_ids"]
    assert not {1, 2} & set(ids)
    assert synapse(*given, "--nospecial").record["result"]["token_ids"] == ids
    assert synapse(*given, "--special").record["result"]["token_ids"] == [1, 6004, 2]


# One prints more than standard output buffers, the other is written only when it ends.
@pytest.mark.parametrize("command", [["inspect", "--json"], ["tokenize", "--prompt", "x"]])
def test_a_reader_that_goes_away_costs_no_result(tiny, tmp_path, command):
    output = tmp_path / "record"
    argv = [str(word) for word in [*MODULE, *command, "--model", tiny, "--output", output]]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered)
    process.stdout.close()
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert process.wait(timeout=300) == 1
    assert json.loads(output.read_text())["command"] == command[0]


def test_interrupt_leaves_nothing_half_written(tiny, tmp_path):
    tokens, folder = tmp_path / "tokens", tmp_path / "results"
    folder.mkdir()
    (folder / "record").write_text("before")
    tokens.write_text(as_argument(some_ids(200_000)))
    # A process started in the background may be told to ignore interrupts: this one is told not to.
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from synapse_jax.cli.main import console_main; console_main()"
    )
    argv = [sys.executable, "-c", script, "score", "--model", tiny, "--tokens-file", tokens, "--context", 32]
    argv += ["--json", "--progress", "lines", "--output", folder / "record", "--trace", folder / "trace"]
    process = subprocess.Popen(
        [str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process.stdout as stdout, process.stderr as stderr:
        for line in stderr:
            if line.startswith("score: 0/"):
                break
        # Both files are open, under other names, while the run goes on.
        assert len(list(folder.iterdir())) == 3 and process.poll() is None
        process.send_signal(signal.SIGINT)
        assert stderr.read().splitlines() == ["synapse: error: interrupted"]
        assert stdout.read() == ""
    assert process.wait(timeout=300) == 130
    assert list(folder.iterdir()) == [folder / "record"]
    assert (folder / "record").read_text() == "before"
