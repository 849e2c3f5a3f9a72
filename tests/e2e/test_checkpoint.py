"""Scoring that is killed, cut or refused disk space goes on to the same bits, or says why not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import as_argument, some_ids
from tests.tiny import write_tiny

N_CTX, CHUNKS = 16, 24
IDS = some_ids(N_CTX * CHUNKS)


@pytest.fixture
def given(tiny, tmp_path) -> list[object]:
    """Arguments of a run of 24 chunks, its checkpoint and its trace."""
    return [
        *("score", "--model", tiny, "--tokens", as_argument(IDS), "--context", N_CTX, "--json"),
        *("--checkpoint", tmp_path / "run.checkpoint", "--trace", tmp_path / "run.trace"),
    ]


@pytest.fixture
def whole(synapse, tiny, tmp_path) -> tuple[dict, str]:
    """Result and trace of the same run without a checkpoint."""
    trace = tmp_path / "whole.trace"
    command = ["score", "--model", tiny, "--tokens", as_argument(IDS), "--context", N_CTX, "--json"]
    return synapse(*command, "--trace", trace).record["result"], trace.read_text()


def files(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "run.checkpoint", folder / "run.trace", folder / "run.trace.part"


def test_case_50_a_run_that_is_killed_goes_on_to_the_same_bits(given, whole, tmp_path):
    """Kill −9 at random moments, at least three times; result and trace are those of an unbroken run."""
    checkpoint, trace, part = files(tmp_path)
    moments, kills = random.Random(0), 0
    while True:
        before = checkpoint.stat().st_size if checkpoint.exists() else 0
        enough = before + moments.randint(1, 900 if kills < 4 else 10**9)
        run = subprocess.Popen(
            [sys.executable, "-m", "synapse_jax", *map(str, given), "--resume"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while run.poll() is None and not (checkpoint.exists() and checkpoint.stat().st_size >= enough):
            time.sleep(0.001)
        if run.poll() is None:
            run.kill()
        out, err = run.communicate()
        if run.returncode == 0:
            break
        assert run.returncode == -9, err
        kills += 1
    record = json.loads(out)
    assert kills >= 3 and record["timings"]["resumed_chunks"] >= 3
    assert (record["result"], trace.read_text()) == whole
    assert not part.exists()


def interrupted(synapse, given, folder: Path, chunks: int) -> None:
    """The files of a run as a kill after so many chunks leaves them."""
    checkpoint, trace, part = files(folder)
    assert synapse(*given).code == 0
    lines = checkpoint.read_bytes().splitlines(keepends=True)
    checkpoint.write_bytes(b"".join(lines[: chunks + 1]))
    os.rename(trace, part)


def test_half_a_line_and_a_trace_that_is_ahead_are_cut_back(synapse, given, whole, tmp_path):
    checkpoint, trace, part = files(tmp_path)
    interrupted(synapse, given, tmp_path, 5)
    with checkpoint.open("ab") as file:
        file.write(b'{"index": 5, "nll_su')
    record = synapse(*given, "--resume").record
    assert record["timings"]["resumed_chunks"] == 5
    assert (record["result"], trace.read_text()) == whole
    # A run that had ended is told again, without any evaluation.
    again = synapse(*given, "--resume").record
    assert (again["result"], again["timings"]["resumed_chunks"]) == (whole[0], CHUNKS)
    assert trace.read_text() == whole[1] and not part.exists()


def test_resume_without_a_checkpoint_begins_one(synapse, given, whole):
    assert synapse(*given, "--resume").record["result"] == whole[0]


def test_checkpoints_of_other_runs_are_refused(synapse, given, tmp_path):
    interrupted(synapse, given, tmp_path, 3)
    write_tiny(tmp_path / "other.gguf", context=64, seed=1)
    kept = [path.read_bytes() for path in files(tmp_path) if path.exists()]
    for changed, name in [
        (["--model", tmp_path / "other.gguf"], "model"),
        (["--tokens", as_argument([*IDS[:-1], 1])], "tokens.evaluated_sha256"),
        (["--context", 12], "protocol.n_ctx"),
        (["--chunks", 5], "protocol.chunks"),
        (["--score-last", 3], "protocol.score_last"),
        (["--kv-dtype", "bf16"], "profile.kv_dtype"),
        (["--precision", "bf16"], "profile.precision"),
        (["--page-size", 32], "profile.page_size"),
        (["--rope-scaling", "linear:2"], "profile.rope"),
        (["--scoring-rows", 1], "step_rows"),
    ]:
        refused = synapse(*given, "--resume", *changed)
        assert refused.code == 2 and name in refused.error and "is of another run" in refused.error, name
    without_trace = [word for word in given if word not in ("--trace", tmp_path / "run.trace")]
    assert "trace differ" in synapse(*without_trace, "--resume").error
    assert [path.read_bytes() for path in files(tmp_path) if path.exists()] == kept


def test_checkpoints_of_another_program_are_refused(synapse, given, tmp_path):
    interrupted(synapse, given, tmp_path, 3)
    checkpoint = files(tmp_path)[0]
    header, *lines = checkpoint.read_text().splitlines(keepends=True)
    moved = json.loads(header)
    for parts in moved["graphs"].values():
        parts["jaxlib"] = "0" * 64
    checkpoint.write_text(json.dumps(moved) + "\n" + "".join(lines))
    refused = synapse(*given, "--resume")
    assert refused.code == 2 and "step rows=32 capacity=256.jaxlib differ" in refused.error


def replace(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("break_files", "message"),
    [
        (lambda c, p: None, "--resume goes on with it"),
        (lambda c, p: c.write_text("hello\n"), "line 1 is not of a checkpoint"),
        (lambda c, p: c.write_text('{"a": 1}'), "line 1 is not of a checkpoint"),
        (lambda c, p: p.write_bytes(b"x" + p.read_bytes()[1:]), "other bytes, the checkpoint says"),
        (lambda c, p: c.write_text('{"schema": "synapse.record/1"}\n'), "not a synapse.checkpoint/1"),
        (lambda c, p: replace(c, '"index": 1,', '"index": 7,'), "chunk 7 is where chunk 1 should be"),
        (lambda c, p: replace(c, '"nll_sum"', '"nll"'), "line 2 is not of a checkpoint"),
        (lambda c, p: p.write_bytes(p.read_bytes()[:-1]), "the checkpoint says"),
        (lambda c, p: p.unlink(), "cannot be written"),
        (lambda c, p: (c.unlink(), c.mkdir()), "is not a file"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_refused(synapse, given, tmp_path, break_files, message):
    checkpoint, _, part = files(tmp_path)
    interrupted(synapse, given, tmp_path, 3)
    length = json.loads(checkpoint.read_text().splitlines()[-1])["trace"]["bytes"]
    part.write_bytes(part.read_bytes()[:length])
    break_files(checkpoint, part)
    left = [path.read_bytes() for path in (checkpoint, part) if path.is_file()]
    refused = synapse(*given, *([] if message.startswith("--resume") else ["--resume"]))
    assert refused.code == 2 and message in refused.error
    assert [path.read_bytes() for path in (checkpoint, part) if path.is_file()] == left


def test_a_trace_must_be_a_file(synapse, given, tmp_path):
    (tmp_path / "run.trace").mkdir()
    assert "is not a file" in synapse(*given).refusal


def test_a_finished_trace_outlives_a_refused_run(synapse, given, tmp_path):
    checkpoint, trace, _ = files(tmp_path)
    assert synapse(*given).code == 0
    kept = trace.read_bytes()
    replace(checkpoint, '"jaxlib": "', '"jaxlib": "0')
    assert "jaxlib differ" in synapse(*given, "--resume").error
    assert trace.read_bytes() == kept


def test_checkpoints_of_other_versions_are_refused(synapse, given, tmp_path):
    """numpy and gguf make weights and angles on the host, where no graph shows it."""
    interrupted(synapse, given, tmp_path, 3)
    replace(files(tmp_path)[0], '"numpy": "', '"numpy": "0.')
    assert "versions.numpy differ" in synapse(*given, "--resume").error


def test_flags_that_do_not_go_together_are_refused(synapse, given, tiny, tmp_path):
    plain = ["score", "--model", tiny, "--tokens", as_argument(IDS), "--context", N_CTX]
    assert "--resume goes with --checkpoint" in synapse(*plain, "--resume").refusal
    record = tmp_path / "record.json"
    assert synapse(*plain, "--chunks", 1, "--output", record).code == 0
    refusal = synapse("score", "--verify", record, "--checkpoint", tmp_path / "c").refusal
    assert "--verify evaluates everything again" in refusal
    same = tmp_path / "same"
    for flag in ("trace", "output"):
        refusal = synapse(*plain, "--checkpoint", same, f"--{flag}", same).refusal
        assert f"--{flag} and --checkpoint are both" in refusal


def test_two_runs_do_not_write_one_checkpoint(synapse, given, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    interrupted(synapse, given, tmp_path, 3)
    with files(tmp_path)[0].open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another run is writing it" in synapse(*given, "--resume").error


def test_a_full_disk_is_an_error_and_the_run_goes_on_after_it(given, whole, synapse, tmp_path):
    """A limit on the size of files stands for the disk; what was on it before the error is good."""
    limited = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4500, 4500)); "
        "runpy.run_module('synapse_jax', run_name='__main__', alter_sys=True)"
    )
    run = subprocess.run([sys.executable, "-c", limited, *map(str, given)], capture_output=True, text=True)
    assert run.returncode == 1 and run.stdout == "", run.stderr
    assert run.stderr.splitlines()[-1].startswith("synapse: error: ") and "cannot be written" in run.stderr
    record = synapse(*given, "--resume").record
    assert record["timings"]["resumed_chunks"] > 0
    assert (record["result"], (tmp_path / "run.trace").read_text()) == whole
