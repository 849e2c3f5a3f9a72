"""Flags: what is refused, in one line, and what is passed on untouched."""

from __future__ import annotations

import json
import re

import pytest

from synapse_jax.cli.main import COMMANDS


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", ["no command", "score", "graph list"]),
        ("scor", ["scor", "score"]),
        ("graph", ["graph list"]),
        ("graph lst", ["graph list"]),
        ("score --contxt 4 --tokens 1", ["--contxt", "--context"]),
        ("score --foo=7 --tokens 1", ["--foo=7"]),
        ("score --prompt x", ["--prompt"]),
        ("generate --tokens 1 --trace x", ["--trace"]),
        ("tokenize --prompt x --context 4", ["--context"]),
        ("inspect --tokens 1", ["--tokens"]),
        ("score --context abc --tokens 1", ["--context", "abc"]),
        ("score --context=-5 --tokens 1", ["--context", "-5"]),
        ("score --context --tokens", ["--context", "--tokens"]),
        ("score --scoring-rows= --tokens 1", ["--scoring-rows"]),
        ("score --progress loud --tokens 1", ["--progress", "loud", "lines"]),
        ("generate --precision f64 --prompt x", ["--precision", "f64", "bf16"]),
        ("generate --max-new-tokens -1 --prompt x", ["--max-new-tokens", "-1"]),
        ("generate --page-size 100 --prompt x", ["100"]),
        ("generate --json=maybe --prompt x", ["--json", "maybe"]),
        ("generate --no-json=1 --prompt x", ["--no-json=1"]),
        ("generate --no-prompt", ["--no-prompt"]),
        ("score --model", ["--model"]),
        ("generate x", ["'x'"]),
        ("generate --prompt x --", ["'--'"]),
        ("score", ["--text-file", "--tokens-file", "--tokens", "none"]),
        ("score --tokens 1 --text-file x", ["--text-file and --tokens are given"]),
        ("generate --prompt x --tokens 1", ["--prompt and --tokens are given"]),
        ("generate --flagfile=/etc/hostname --prompt x", ["--flagfile"]),
        ("generate --undefok=foo --foo=1 --prompt x", ["--undefok"]),
        ("score --tokens 1 --trace same --output same", ["--trace", "--output", "same"]),
        ("tokenize --prompt x --output /nowhere/file", ["/nowhere/file"]),
        ("tokenize --prompt x --output /", ["/: cannot be written"]),
        ("score --tokens 1 --device cup --model {tiny} --context 3", ["token"]),
        ("generate --prompt x --device cup --model {tiny} --max-new-tokens 1", ["device", "cup"]),
        ("generate --prompt x --device cpu:99 --model {tiny} --max-new-tokens 1", ["cpu:99"]),
        ("inspect --model nowhere.gguf", ["nowhere.gguf", "no such file"]),
        ("inspect --model nobody", ["nobody", "smollm2-135m-instruct"]),
        ("graph diff ''", ["B is missing"]),
        ("graph diff nonsense '' --model {tiny}", ["'nonsense'", "manifest"]),
        ("graph list --model {tiny} --rows 5", ["rows 5", "32, 64"]),
        ("graph show --model {tiny} --rows 33", ["33"]),
        ("graph verify --graphs /nowhere", ["/nowhere"]),
        ("graph export", ["FOLDER"]),
        ("graph export x --platforms abacus", ["abacus", "METAL"]),
        ("graph run", ["FOLDER"]),
        ("graph run /nowhere --model {tiny} --tokens 1", ["/nowhere"]),
        ("score --text-file nowhere --model {tiny}  --context 8", ["nowhere", "cannot be read"]),
    ],
)
def test_bad_usage_is_one_line_that_names_flag_and_value(synapse, tiny, line, named):
    refusal = synapse(*(word.format(tiny=tiny) for word in line.split())).refusal
    for name in named:
        assert name in refusal


def test_dashes_and_underscores_are_the_same_in_names(synapse, tiny):
    given = ["score", "--model", tiny, "--tokens", "1 2 3 4 5 6 7 8 9", "--json"]
    results = [
        synapse(*given, *flags).record["result"]
        for flags in (
            ["--scoring-rows", 2, "--score-last=1", "--context", 9],
            ["--scoring_rows", 2, "--score_last=1", "--context", 9],
            ["-scoring-rows=2", "-score_last", 1, "--context=9"],
        )
    ]
    assert results[0]["scoring_rows"] == 2
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    "value",
    ["--x-y", "-x-y", "--max-new-tokens", "--help", "-h", "--", "--flagfile=/etc/hostname", "a=b-c_d", ""],
)
def test_values_are_not_altered(synapse, tiny, tmp_path, value):
    path = tmp_path / "text"
    path.write_text(value)
    expected = synapse("tokenize", "--model", tiny, "--text-file", path, "--json").record["result"]
    for given in (["--prompt", value], [f"--prompt={value}"], ["-prompt", value]):
        assert synapse("tokenize", "--model", tiny, "--json", *given).record["result"] == expected
    assert len(expected["token_ids"]) > 0 or value == ""


@pytest.mark.parametrize("flag", ["--no-json", "--no_json", "--nojson", "--json=false"])
def test_json_can_be_switched_off(synapse, tiny, flag):
    given = ["tokenize", "--model", tiny, "--prompt", "x"]
    assert synapse(*given, "--json", flag).out == synapse(*given).out != synapse(*given, "--json").out
    assert synapse(*given, flag, "--json").out == synapse(*given, "--json").out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_command_shows_its_own_flags_only(synapse, command, flag):
    finished = synapse(*command.split(), "--output", "--help", flag)
    assert (finished.code, finished.err) == (0, "")
    shown = set(re.findall(r"^  --([a-z-]+)", finished.out, re.MULTILINE))
    own = {
        "score": {
            "text-file",
            "tokens",
            "trace",
            "scoring-rows",
            "score-last",
            "chunks",
            "progress",
            "context",
        },
        "compare": {
            *("a", "b", "control", "worst", "plot", "text-file", "tokens"),
            *("chunks", "score-last", "progress", "context"),
        },
        "generate": {"prompt", "prompt-file", "tokens", "max-new-tokens", "progress", "context"},
        "probe": {*("length", "blocks", "depths", "plot", "text-file", "tokens"), *("progress", "context")},
        "quality": {
            *("tasks", "lengths", "depths", "control", "haystack", "ruler", "chat", "seed", "plot"),
            *("cases-per-cell", "answer-tokens", "checkpoint", "resume", "progress", "context"),
        },
        "passkey": {"form", "lengths", "depths", "max-new-tokens", "progress", "context"},
        "tokenize": {"prompt", "text-file"},
        "inspect": set(),
        "models": {"fetch", "progress"},
        "train": {*("texts", "length", "learning-rate", "repeat-share", "looks", "tokens", "progress")},
        "graph list": {"context", "precision", "device"},
        "graph precompile": {"context", "entries", "positions", "progress"},
        "graph show": {"context", "entry", "rows", "capacity", "hlo", "compile"},
        "graph diff": {"a", "b", "platform", "context", "entry"},
        "graph verify": {"graphs", "progress"},
        "graph export": {"folder", "platforms", "context", "entry"},
        "graph run": {"folder", "text-file", "tokens", "progress"},
    }
    assert own[command] | {"json", "output", "debug"} <= shown
    assert ("model" in shown) == (command not in ("models", "train", "graph verify"))
    others = set().union(*own.values()) - own[command]
    shared = {"tokens", "context", "precision", "device", "progress", "prompt", "text-file"}
    shared |= {"entry", "rows", "capacity", "folder"}
    shared |= {
        "checkpoint",
        "resume",
        "seed",
        "plot",
        "chat",
        "depths",
        "lengths",
        "max-new-tokens",
        "control",
    }
    assert not (others - shared) & shown
    assert not {"helpfull", "flagfile", "undefok"} & shown


def test_overview_lists_the_commands(synapse):
    for given in (["--help"], ["-h"], ["help"]):
        finished = synapse(*given)
        assert finished.code == 0
        assert all(f"  {name} " in finished.out for name in COMMANDS)
    assert "graph show" in synapse("graph", "--help").out
    assert synapse("--version").out.strip().count(".") == 2


def test_debug_adds_the_traceback(synapse):
    finished = synapse("inspect", "--model", "nowhere.gguf", "--debug")
    assert finished.code == 2 and "Traceback" in finished.err
    assert finished.err.splitlines()[-1].startswith("synapse: error: model 'nowhere.gguf'")


def test_newlines_in_a_value_stay_on_the_one_line(synapse, tiny):
    refusal = synapse("inspect", "--model", "a\nb.gguf").refusal
    assert json.dumps("a\nb.gguf")[1:-1] in refusal
    assert "\\n" in synapse("generate", "a\nb").refusal
