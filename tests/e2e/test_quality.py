"""`synapse quality`: record, table, plot, resumption, controls and refusals."""

from __future__ import annotations

import json

import pytest

import synapse_jax as sj
from synapse_jax.evals.tasks.filler import make_filler
from synapse_jax.evals.tasks.haystack import read_haystack
from synapse_jax.evals.tasks.prompt import PromptWriter
from synapse_jax.spec.digest import sha256_tokens
from tests.e2e.test_record import TOP
from tests.echo import Echo
from tests.tiny import write_tiny
from tests.unit.test_quality_cases import NOW, prose

LENGTHS = (700, 500)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A TINY model whose window holds the cases, under a vocabulary that adds BOS."""
    path = tmp_path_factory.mktemp("quality") / "tiny.gguf"

    def add_bos(metadata, tensors):
        metadata["tokenizer.ggml.add_bos_token"] = True

    write_tiny(path, context=1024, layers=1, mutate=add_bos)
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("quality") / "prose.txt"
    path.write_text(prose(300))
    return path


@pytest.fixture(scope="module")
def given(model, text) -> list[object]:
    lengths = ",".join(map(str, LENGTHS))
    cases = ["--lengths", lengths, "--depths", "0.1,0.9", "--answer-tokens", 5, "--seed", 2]
    return ["quality", "--model", model, "--haystack", text, *cases]


def without_seconds(result: dict) -> dict:
    """The part of a result that is the same in every run."""
    copied = json.loads(json.dumps(result))
    for case in copied["cases"]:
        for answer in (case["ours"], case["control"]):
            if answer is not None:
                del answer["seconds"]
    return copied


def test_record_of_a_run(synapse, given, model, text):
    record = synapse(*given, "--json").record
    assert list(record) == TOP and record["command"] == "quality"
    assert all(record[name] is not None for name in TOP)
    assert record["runtime"]["context"] == 700
    result = record["result"]
    assert (result["lengths"], result["depths"], result["seed"]) == ([700, 500], [0.1, 0.9], 2)
    assert result["answer_tokens"] == {"needle": 5, "multikey": 5, "tracking": 5}
    haystack = read_haystack([str(text)])
    assert result["haystack"]["sha256"] == haystack.sha256
    assert [file["name"] for file in result["haystack"]["files"]] == ["prose.txt"]
    assert (result["control"], result["agreement"], result["chat"]) == (None, None, None)
    named = [(case["task"], case["length"], case["depth"]) for case in result["cases"]]
    assert named == [
        (task, length, depth)
        for length in LENGTHS
        for task, depths in (("needle", (0.1, 0.9)), ("multikey", (0.1, 0.9)), ("tracking", (None,)))
        for depth in depths
    ]
    assert [(cell["task"], cell["length"], cell["depth"]) for cell in result["cells"]] == named
    # What the record tells is what the library does with the same prompts.
    with sj.load(model) as loaded:
        from synapse_jax.evals.tasks.plan import QualityPlan

        plan = QualityPlan(("needle", "multikey", "tracking"), LENGTHS, (0.1, 0.9), 2, answer_tokens=5)
        filler = make_filler(haystack, loaded.tokenizer, 700)
        cases = list(plan.cases(filler, PromptWriter(loaded.tokenizer, None, NOW)))
        session = sj.Session(loaded, ready=[])
        for case, told in zip(cases, result["cases"], strict=True):
            assert (told["prompt_tokens"], told["prompt_sha256"]) == (len(case.ids), sha256_tokens(case.ids))
            ours = told["ours"]
            assert (ours["evaluated_count"], ours["evaluated_sha256"]) == (len(case.ids), case.sha256)
            found = session.generate(case.ids, 5)
            assert list(found.token_ids) == ours["token_ids"]
            assert loaded.tokenizer.decode(found.token_ids) == ours["text"]
            assert told["failed"] and told["control_failed_the_same_way"] is None
            assert ours["missing"] == list(case.answers) == told["answers"]
    ids = [token for case in cases for token in case.ids]
    assert (record["tokens"]["count"], record["tokens"]["sha256"]) == (len(ids), sha256_tokens(ids))
    # The newest token of an answer is not evaluated, unless a stop token came after it.
    answers = [case["ours"] for case in result["cases"]]
    evaluated = sum(len(answer["token_ids"]) - (not answer["stopped"]) for answer in answers)
    assert record["tokens"]["evaluated_count"] == len(ids) + evaluated


def test_table_and_heat_map(synapse, given, tmp_path):
    path = tmp_path / "quality.png"
    finished = synapse(*given, "--tasks", "needle,tracking", "--plot", path)
    assert finished.code == 0, finished.err
    assert "needle 500 at 0.1  0 of 1 right, score 0.00" in finished.out
    assert finished.out.count("no control ran") == 6
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_profiles_go_through_the_same_command(synapse, given):
    one = ["--tasks", "needle", "--lengths", 500, "--depths", "0.5", "--json"]
    dense = synapse(*given, *one).record
    answers = {}
    for name, more in {
        "pages": ["--attention", "pages:budget=0,window=16", "--page-size", 16],
        "window": ["--attention", "window:16"],
        "compressed": ["--attention", "compressed:window=16,block=4"],
        "kv": ["--kv-dtype", "bf16"],
        "precision": ["--precision", "bf16"],
        "yarn": ["--rope-scaling", "yarn:2:1024"],
    }.items():
        record = synapse(*given, *one, *more).record
        (case,), (same) = record["result"]["cases"], dense["result"]["cases"][0]
        assert case["prompt_sha256"] == same["prompt_sha256"] == case["ours"]["evaluated_sha256"]
        assert record["fingerprints"]["profile"] != dense["fingerprints"]["profile"]
        answers[name] = case["ours"]["token_ids"]
    assert answers["window"] != dense["result"]["cases"][0]["ours"]["token_ids"]
    longer = ["--tasks", "needle", "--lengths", 1500, "--depths", "0.5", "--json"]
    assert "context 1500 is above the 1024 positions" in synapse(*given, *longer).refusal
    record = synapse(*given, *longer, "--rope-scaling", "yarn:2:1024").record
    assert record["runtime"]["rope"]["type"] == "yarn" and record["runtime"]["context"] == 1500
    assert record["memory"]["kv_capacity"] < 2 * 1500


@pytest.fixture
def control(monkeypatch, model):
    def install(*arguments, **more):
        monkeypatch.setattr("synapse_jax.cli.controls.open_control", lambda *_: Echo(*arguments, **more))
        return ["--control", f"llama.cpp:{model}"]

    return install


def test_a_control_stands_beside_every_answer(synapse, given, control, model):
    record = synapse(*given, *control(None), "--json").record
    result = record["result"]
    assert result["agreement"] == {
        "cases": 10,
        "identical": 10,
        "largest_margin": None,
        "failed": 10,
        "control_failed_the_same_way": 10,
    }
    with sj.load(model) as loaded:
        assert result["control"]["sha256"] == loaded.sha256() and result["control"]["engine"] == "echo 1.0"
        right = {
            case["answers"][0]: loaded.tokenizer.encode(case["answers"][0], add_special=False)
            for case in result["cases"]
        }
    case = result["cases"][0]
    knows = control(tuple(right[case["answers"][0]]), margin=0.25)
    finished = synapse(*given, "--tasks", "needle", "--lengths", 700, "--depths", "0.1", *knows, "--json")
    (other,) = finished.record["result"]["cases"]
    assert other["answers"] == case["answers"] and other["control"]["verdict"] == "right"
    assert (other["failed"], other["control_failed_the_same_way"]) == (True, False)
    assert (other["identical"], other["first_difference"], other["margin"]) == (False, 0, 0.25)
    shown = synapse(*given, "--tasks", "needle", "--lengths", 700, "--depths", "0.1", *knows).out
    assert "the control was right" in shown and "token 0 differs by a margin of 0.25" in shown
    same = synapse(*given, "--tasks", "needle", "--lengths", 700, *control(None)).out
    assert same.count("the control failed the same way") == 2 and "2 of 2 are the control's" in same


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"dropped": 1}, r"echo 1.0 evaluated"),
        ({"vocab": 289}, "has a vocabulary of 289 tokens, ours has 288"),
    ],
)
def test_a_control_of_other_tokens_is_refused(synapse, given, control, more, reason):
    finished = synapse(*given, "--lengths", 500, *control(None, **more))
    assert finished.code == 2 and reason in finished.error


def test_a_run_that_was_cut_goes_on_to_the_same_answers(synapse, given, control, text, tmp_path):
    given = [*given, "--lengths", 700, "--json", *control(None)]
    whole, path = without_seconds(synapse(*given).record["result"]), tmp_path / "checkpoint"
    assert without_seconds(synapse(*given, "--checkpoint", path).record["result"]) == whole
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 5
    path.write_text("".join(lines[:3]) + lines[3][:30])
    resumed = synapse(*given, "--checkpoint", path, "--resume").record
    assert without_seconds(resumed["result"]) == whole and resumed["timings"]["resumed_chunks"] == 2
    again = synapse(*given, "--checkpoint", path, "--resume").record
    assert without_seconds(again["result"]) == whole and again["timings"]["resumed_chunks"] == 5
    assert "--resume goes on with it" in synapse(*given, "--checkpoint", path).error
    for changed, name in (
        (["--seed", 5], "asked.seed"),
        (["--ruler"], "asked.ruler"),
        (["--lengths", 650], "asked.lengths"),
        (["--haystack", f"{text},{text}"], "asked.haystack"),
        (["--kv-dtype", "bf16"], "profile.kv_dtype"),
    ):
        refused = synapse(*given, "--checkpoint", path, "--resume", *changed)
        assert refused.code == 2 and name in refused.error and "is of another run" in refused.error
    tampered = [*lines[:1], lines[1].replace('"failed": true', '"failed": false'), *lines[2:]]
    path.write_text("".join(tampered))
    assert "line 2 is not of a checkpoint" in synapse(*given, "--checkpoint", path, "--resume").error


def test_the_projects_own_text_is_the_default(synapse, model):
    one = ["--tasks", "needle", "--lengths", 500, "--depths", "0.5", "--answer-tokens", 1, "--json"]
    record = synapse("quality", "--model", model, *one).record
    names = [file["name"] for file in record["result"]["haystack"]["files"]]
    assert names[0] == "README.md" and len(names) > 100
    digest = record["result"]["haystack"]["sha256"]
    same = synapse("quality", "--model", model, *one, "--haystack-sha256", digest).record
    assert without_seconds(same["result"]) == without_seconds(record["result"])


def test_templates_are_applied_where_there_are_any(synapse, given, text, tmp_path):
    path = tmp_path / "chatty.gguf"

    def talk(metadata, tensors):
        metadata["tokenizer.chat_template"] = "{% for m in messages %}<|im_end|>{{ m.content }}{% endfor %}A:"

    write_tiny(path, context=1024, layers=1, mutate=talk)
    one = ["--tasks", "needle", "--lengths", 500, "--depths", "0.5", "--json", "--model", path]
    chat = synapse(*given, *one).record["result"]
    plain = synapse(*given, *one, "--no-chat").record["result"]
    assert chat["chat"]["now"] == "2026-01-01T00:00:00" and plain["chat"] is None
    assert chat["cases"][0]["prompt_sha256"] != plain["cases"][0]["prompt_sha256"]
    again = synapse(*given, *one, "--chat").record["result"]
    assert without_seconds(again) == without_seconds(chat)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--lengths", "x"], "'x' is not one; give 4096,8192"),
        (["--depths", "2"], "depth 2 is not between 0 and 1"),
        (["--tasks", "niah"], "there is no task 'niah'"),
        (["--lengths", 64], "length 64 is too short for needle"),
        (["--lengths", 1025], "context 1025 is above the 1024 positions"),
        (["--context", 500], "length 700 is above the context of 500"),
        (["--haystack", "/nowhere"], "/nowhere: cannot be read"),
        (["--haystack-sha256", "00"], "00 was asked for"),
        (["--chat-time", "noon"], "--chat-time 'noon'"),
        (["--chat"], "has no chat template"),
        (["--resume"], "--resume goes with --checkpoint"),
        (["--plot", "x.gif"], "a plot ends in"),
        (["--plot", "same.png", "--output", "./same.png"], "--output and --plot are both"),
        (["--control", "command:llama-completion"], "quality compares token IDs"),
        (["--control", "vllm:x"], "is not llama.cpp:FILE.gguf"),
        (["--control", "llama.cpp:x", "--rope-scaling", "linear:2"], "linear:2 would not reach"),
        (["--attention", "pages:budget=7,window=4"], "budget 7"),
    ],
)
def test_what_cannot_be_asked_is_refused(synapse, given, more, named):
    finished = synapse(*given, "--progress", "none", *more)
    assert named in finished.refusal
