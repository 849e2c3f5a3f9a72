"""`synapse passkey`: a process a prompt, answers, refusals, going on after a crash."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import synapse_jax as sj
from synapse_jax.spec.digest import sha256_tokens
from tests.e2e.conftest import Command
from tests.echo import Echo
from tests.tiny import write_tiny


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A TINY model with a window of 1,024; its vocabulary takes a token a byte or two."""
    path = tmp_path_factory.mktemp("models") / "wide.gguf"
    write_tiny(path, context=1024)
    return path


def test_passkey_command_finds_key_in_short_prompt(synapse: Command, smol_path):
    given = ["--lengths", 192, "--depths", 0.5, "--max-new-tokens", 8, "--progress", "lines"]
    finished = synapse("passkey", "--model", smol_path, *given, "--json")
    record = finished.record
    result, (run,) = record["result"], record["result"]["runs"]
    assert (record["command"], result["prompts"], result["found"]) == ("passkey", 1, 1)
    assert run["key"] in run["text"] and re.fullmatch("[0-9]{5}", run["key"])
    # Every token of the prompt was given and evaluated, and of the answer all but the last.
    assert 150 < run["prompt_tokens"] <= 184
    assert run["tokens"]["count"] == run["prompt_tokens"] == record["tokens"]["count"]
    assert run["tokens"]["sha256"] == run["prompt_sha256"] == record["tokens"]["sha256"]
    new = run["token_ids"] if run["finish_reason"] == "stop" else run["token_ids"][:-1]
    assert run["tokens"]["evaluated_count"] == run["prompt_tokens"] + len(new)
    assert run["tokens"]["evaluated_sha256"] == record["tokens"]["evaluated_sha256"]
    assert run["memory"]["kv_positions"] == run["tokens"]["evaluated_count"]
    assert run["memory"]["kv_allocated_bytes"] > 0 and run["memory"]["peak_rss_bytes"] > 500e6
    assert 0 < run["timings"]["eval_s"] < run["timings"]["wall_s"]
    assert record["memory"]["peak_rss_bytes"] == run["memory"]["peak_rss_bytes"]
    # The process's own progress reached standard error.
    assert "generate: 0/" in finished.err and "prompt 1 of 1" in finished.err


def test_passkey_command_rejects_prompts_longer_than_context(synapse: Command, wide, monkeypatch):
    monkeypatch.setattr(subprocess, "run", None)  # no process begins
    for given, limit in ((("--lengths", "600,1025"), 1024), (("--lengths", 1025, "--context", 900), 900)):
        refusal = synapse("passkey", "--model", wide, *given).refusal
        assert f"length 1025 is above the context of {limit} positions" in refusal
    assert re.search(r"length 90: .* have \d+$", synapse("passkey", "--model", wide, "--lengths", 90).refusal)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--lengths 512k", ["lengths", "512k"]),
        ("--depths 0.5,2", ["depth 2"]),
        ("--depths 0.5,0.5", ["depths", "twice"]),
        ("--form other", ["--form", "other", "llama.cpp"]),
        ("--max-new-tokens 0", ["0 new tokens"]),
        ("--resume", ["--resume", "--checkpoint"]),
        ("--output x --checkpoint x", ["--output", "--checkpoint"]),
        ("--kv-dtype f64", ["--kv-dtype", "f64"]),
        ("--control command:llama-completion", ["passkey compares token IDs"]),
        ("--control llama.cpp:x --rope-scaling linear:2", ["linear:2", "would not reach"]),
    ],
)
def test_bad_usage_is_refused(synapse: Command, wide, line, named):
    refusal = synapse("passkey", "--model", wide, *line.split()).refusal
    assert all(name in refusal for name in named)


def test_a_finished_prompt_is_not_run_again(synapse: Command, wide, tmp_path):
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "record"
    given = ["passkey", "--model", wide, "--lengths", 800, "--max-new-tokens", 2, "--kv-dtype", "bf16"]
    given += ["--progress", "none", "--checkpoint", checkpoint, "--output", output]
    first = synapse(*given, "--depths", "0,1", "--json").record
    assert [run["depth"] for run in first["result"]["runs"]] == [0, 1]
    # The flags of the runtime went to the processes, which know no more than those.
    assert first["runtime"]["kv_dtype"] == "bf16"
    profiles = {run["fingerprints"]["profile"] for run in first["result"]["runs"]}
    other = synapse("generate", "--model", wide, "--kv-dtype", "bf16", "--tokens", 1, "--json").record
    assert profiles == {other["fingerprints"]["profile"]}
    # Killed after the first prompt: half a line of the second is there.
    lines = checkpoint.read_text().splitlines(keepends=True)
    assert len(lines) == 3
    checkpoint.write_text("".join(lines[:2]) + lines[2][:99])
    again = synapse(*given, "--depths", "0,1", "--resume", "--json").record
    assert again["result"]["runs"][0] == first["result"]["runs"][0]
    assert again["result"]["runs"][1]["token_ids"] == first["result"]["runs"][1]["token_ids"]
    assert again["timings"]["resumed_chunks"] == 1
    assert json.loads(output.read_text()) == again
    refusal = synapse(*given, "--depths", "0,0.5", "--resume").refusal
    assert f"{checkpoint}: is of another run" in refusal
    shown = synapse(*given, "--depths", "0,1", "--resume")
    assert "found    0 of 2" in re.sub(" +", "    ", shown.out).replace("    of", " of").replace(
        "    2", " 2"
    )


@pytest.fixture
def control(monkeypatch, wide):
    def install(*arguments, **more):
        monkeypatch.setattr("synapse_jax.cli.controls.open_control", lambda *_: Echo(*arguments, **more))
        return ["--control", f"llama.cpp:{wide}"]

    return install


def test_a_control_stands_beside_every_answer(synapse: Command, wide, control, tmp_path):
    given = ["passkey", "--model", wide, "--lengths", 800, "--depths", "0,1", "--max-new-tokens", 5]
    given += ["--progress", "none", "--checkpoint", tmp_path / "checkpoint"]
    result = synapse(*given, *control(None), "--json").record["result"]
    with sj.load(wide) as model:
        assert result["control"]["engine"] == "echo 1.0" and result["control"]["sha256"] == model.sha256()
        key = tuple(model.tokenizer.encode(f" {result['runs'][0]['key']}", add_special=False))
    for run in result["runs"]:
        theirs = run["control"]
        assert (theirs["evaluated_count"], theirs["evaluated_sha256"]) == (
            run["prompt_tokens"],
            run["prompt_sha256"],
        )
        names = ("text", "token_ids", "finish_reason", "found", "other_numbers")
        assert {name: theirs[name] for name in names} == {name: run[name] for name in names}
        assert (run["found"], run["control_failed_the_same_way"]) == (False, True)
        assert (run["identical"], run["margin"]) == (True, None)
    again = synapse(*given, *control(None), "--resume")
    assert again.out.count("the control's answer is the same") == 2
    assert "is of another run" in synapse(*given, "--resume").refusal
    other = ["--depths", 0, *control(key, margin=0.25)]
    shown = synapse(*given[:-2], *other)
    assert "the control: found, " in shown.out and "(tokens part by 0.25 logits)" in shown.out
    finished = synapse(*given[:-4], *other, "--progress", "lines", "--json")
    (run,) = finished.record["result"]["runs"]
    assert "echo 1.0" in finished.err and re.search(r"control: (\d+)/\1 positions", finished.err)
    assert (run["identical"], run["margin"], run["control_failed_the_same_way"]) == (False, 0.25, False)
    finished = synapse(*given[:-2], "--depths", 0, *control(None, dropped=1))
    assert finished.code == 2 and "echo 1.0 evaluated" in finished.error
    assert "; no control ran" in synapse(*given[:-2], "--depths", 0).out


def test_a_process_that_fails_is_named(synapse: Command, wide, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    finished = synapse("passkey", "--model", wide, "--lengths", 800, "--depths", 0.5)
    assert finished.code == 1
    assert "ended with 1 on the prompt of length 800 at depth 0.5" in finished.error


def test_other_tokens_in_the_process_are_an_error(synapse: Command, wide, monkeypatch):
    real = subprocess.run

    def changed(command, **more):
        done = real(command, **more)
        record = json.loads(done.stdout)
        record["tokens"]["evaluated_sha256"] = sha256_tokens([1])
        done.stdout = json.dumps(record).encode()
        return done

    monkeypatch.setattr(subprocess, "run", changed)
    given = ["--lengths", 800, "--depths", 0.5, "--max-new-tokens", 1]
    finished = synapse("passkey", "--model", wide, *given)
    assert finished.code == 1 and "tokens were evaluated that are not the" in finished.error


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed by Linux")
def test_no_process_outlives_the_command(wide):
    argv = [
        sys.executable,
        "-m",
        "synapse_jax",
        "passkey",
        "--model",
        wide,
        "--lengths",
        800,
        "--progress=lines",
    ]
    process = subprocess.Popen([str(word) for word in argv], stderr=subprocess.PIPE, text=True)
    with process.stderr as stderr:
        for line in stderr:
            if line.startswith("synapse: compiling"):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGTERM)
        assert stderr.read().splitlines()[-1] == "synapse: error: interrupted"
    assert process.wait(timeout=300) == 130
    assert len(children) == 1 and not os.path.exists(f"/proc/{children[0]}")
