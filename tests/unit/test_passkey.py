"""Pass-key prompts: locked tokens, depth, budget; and that a record of other tokens is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.passkey.fixture import Fixture
from synapse_jax.evals.passkey.form import FORMS
from synapse_jax.evals.passkey.plan import PasskeyPlan
from synapse_jax.evals.passkey.run import PasskeyCheckpoint, evaluated_ids, prompt_fields, read_run
from synapse_jax.spec.digest import sha256_tokens

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "passkey.json").read_text())
MODELS = {"smollm2-135m-instruct": "smol", "gemma-3-270m": "gemma"}
DIGESTS = {
    ("smol", "plain"): "f63f608ea4237325d86dbc1cb136a5dd7df39993d6e4c925ee24987c476f3f58",
    ("smol", "llama.cpp"): "a9bf13543d12f5156ca90991dfb17b6b7a0932ecabbb962675dc3ee9b5420fb6",
    ("gemma", "plain"): "465e1f6ed3df2512a55059f13d42f779d1f44512be52a5d0d12b1e27942f8991",
    ("gemma", "llama.cpp"): "871ab32aed754b043b7cb6ee10e8bb91eedb1721729ab4ed4f919c93c7b04131",
}
"""A word or a token of a fixture that changes makes another one: figures of both cannot be compared."""


@pytest.fixture(scope="session")
def fixtures(smol, gemma):
    """Fixtures by vocabulary and form."""
    vocabularies = {"smol": smol, "gemma": gemma}
    return {(name, form): Fixture(form, vocabularies[name], name) for name, form in DIGESTS}


@pytest.mark.parametrize("model", MODELS)
def test_tokens_of_prompts_are_llama_cpps(fixtures, model):
    for golden in GOLDEN["models"][model]["prompts"]:
        prompt = fixtures[MODELS[model], golden["form"]].prompt(**GOLDEN["asked"])
        assert (prompt.key, list(prompt.ids)) == (golden["key"], golden["ids"])


@pytest.mark.parametrize("which", DIGESTS)
def test_fixtures_are_locked(fixtures, which):
    assert fixtures[which].sha256 == DIGESTS[which]


@pytest.mark.parametrize("which", DIGESTS)
@given(
    length=st.integers(150, 3000),
    depth=st.floats(0, 1),
    answer=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_prompts_fill_the_length_and_hold_the_key_at_its_depth(fixtures, which, length, depth, answer, seed):
    fixture, form = fixtures[which], FORMS[which[1]]
    prompt = fixture.prompt(length, depth, answer, seed)
    text = fixture._tokenizer.decode(prompt.ids, special=False)
    assert fixture._tokenizer.encode(text) == list(prompt.ids)
    longest = max(map(len, fixture.filler))
    assert length - longest < len(prompt.ids) + answer <= length
    # The key is a number of its own, in its sentence alone, and that sentence is where the record says.
    sentence = form.key.format(key=prompt.key)
    assert re.fullmatch("[1-9][0-9]{4}", prompt.key) and text.count(sentence) == 1
    assert text.replace(sentence, "").count(prompt.key) == 0
    before, after = text.split(sentence)
    assert before == fixture._tokenizer.decode(prompt.ids[: prompt.key_at], special=False)
    assert before.startswith(form.prefix) and after.endswith(form.question)
    filler = before.removeprefix(form.prefix) + after.removesuffix(form.question)
    repeats = -(-prompt.fillers // len(form.filler)) + 1
    assert ("".join(form.filler) * repeats).startswith(filler)
    size = (
        len(prompt.ids) - len(fixture.prefix) - len(fixture.key_sentence(prompt.key)) - len(fixture.question)
    )
    assert 0 <= depth - prompt.depth_reached < longest / size or prompt.depth_reached == depth == 1


def test_the_key_follows_from_seed_length_and_depth(fixtures):
    fixture = fixtures["smol", "plain"]
    keys = {fixture.prompt(n, d, 16, s).key for n in (300, 301) for d in (0.1, 0.5) for s in (0, 1)}
    assert len(keys) == 8
    assert fixture.prompt(300, 0.5, 16, 0) == fixture.prompt(300, 0.5, 16, 0)


def test_what_does_not_fit_is_refused_with_the_numbers(fixtures):
    fixture = fixtures["smol", "plain"]
    least = next(n for n in range(60, 200) if _fits(fixture, n))
    with pytest.raises(InputError, match=rf"length {least - 1}: .* and 16 tokens .* have {least}$"):
        fixture.prompt(least - 1, 0.5, 16, 0)
    assert fixture.prompt(least, 0.5, 16, 0).fillers == 1
    for plan, message in [
        (dict(lengths=(200, 8193)), "length 8193 is above the context of 8192 positions"),
        (dict(lengths=(10**15,)), "above the context"),
        (dict(lengths=(0,)), "length 0 is below 1"),
        (dict(lengths=(200, 200)), "one is there twice"),
        (dict(depths=(1.5,)), "depth 1.5 is not between 0 and 1"),
        (dict(depths=(float("nan"),)), "depth nan"),
        (dict(answer_tokens=0), "0 new tokens"),
        (dict(seed=-1), "seed -1"),
    ]:
        with pytest.raises(InputError, match=message):
            PasskeyPlan(**{"lengths": (200,), "depths": (0.5,), **plan}).prompts(fixture, 8192)


def _fits(fixture, length):
    try:
        return fixture.prompt(length, 0.5, 16, 0).fillers > 0
    except InputError:
        return False


def test_a_vocabulary_that_joins_sentences_is_refused():
    class Joining:
        add_bos, bos_id = False, None

        def encode(self, text, add_special=True):
            """A token a character, but that a full stop and the space after it are one."""
            return [ord(c) for c in text.replace(". ", "|")]

    with pytest.raises(InputError, match=r"'.*' and '.*' share a token"):
        Fixture("plain", Joining(), "joining.gguf")


def record_of(prompt, *, new=(1, 2, 3), text=" 1", reason="length", **tokens):
    """The record of `generate` on a prompt, or with other tokens."""
    result = {"text": text, "token_ids": list(new), "finish_reason": reason}
    ids = evaluated_ids(prompt, result)
    right = {"count": len(prompt.ids), "sha256": prompt.sha256}
    right |= {"evaluated_count": len(ids), "evaluated_sha256": sha256_tokens(ids)}
    return {
        "result": result,
        "tokens": right | tokens,
        "fingerprints": {"profile": "p", "entries": []},
        "timings": {},
        "memory": {},
    }


def test_other_tokens_than_the_prompts_are_an_error(fixtures):
    prompt = fixtures["smol", "plain"].prompt(200, 0.5, 16, 0)
    read_run(prompt, record_of(prompt), 1.0)
    shorter = sha256_tokens(prompt.ids[1:])
    for tokens in (
        {"count": len(prompt.ids) - 1, "sha256": shorter},
        {"sha256": shorter},
        {"evaluated_count": len(prompt.ids) + 1},
        {"evaluated_sha256": sha256_tokens(prompt.ids)},
    ):
        with pytest.raises(RunError, match=r"length 200 at depth 0.5"):
            read_run(prompt, record_of(prompt, **tokens), 1.0)
    # A stop token is not evaluated, and all before it are.
    assert evaluated_ids(prompt, {"token_ids": [1, 2], "finish_reason": "stop"}) == [*prompt.ids, 1, 2]
    assert evaluated_ids(prompt, {"token_ids": [1, 2], "finish_reason": "length"}) == [*prompt.ids, 1]


@pytest.mark.parametrize(
    ("text", "reason", "found", "others"),
    [
        (" {key}.", "length", True, []),
        (" 1{key}", "length", False, ["1{key}"]),
        (" {key}0", "length", False, ["{key}0"]),
        (" {key}. The pass key is 99999.", "length", True, ["99999"]),
        (" {key}. The pass key is {start}", "length", True, []),
        (" {key}. The pass key is {start}", "stop", True, ["{start}"]),
        (" {start}", "length", False, []),
        ("", "stop", False, []),
    ],
)
def test_answers_are_whole_numbers(fixtures, text, reason, found, others):
    prompt = fixtures["smol", "plain"].prompt(200, 0.5, 16, 0)
    names = {"key": prompt.key, "start": prompt.key[:3]}
    run = read_run(prompt, record_of(prompt, text=text.format(**names), reason=reason), 1.0)
    assert (run["found"], run["other_numbers"]) == (found, [other.format(**names) for other in others])


def test_a_checkpoint_takes_only_its_own_prompts(fixtures, tmp_path):
    fixture = fixtures["smol", "plain"]
    prompts = [fixture.prompt(200, depth, 16, 0) for depth in (0.1, 0.9)]
    runs = [read_run(prompt, record_of(prompt, text=f" {prompt.key}"), 1.0) for prompt in prompts]
    path = tmp_path / "checkpoint"
    with PasskeyCheckpoint(path, {"a": 1}, prompts, resume=False) as checkpoint:
        checkpoint.begin({})
        checkpoint.add(runs[0])
    with PasskeyCheckpoint(path, {"a": 1}, prompts, resume=True) as checkpoint:
        assert checkpoint.done == runs[:1]
    lines = path.read_text().splitlines()
    for prompts_there, line, message in [
        (prompts[::-1], lines[1], "prompt 0 is not of this run"),
        ([], lines[1], "prompt 0 is not of this run"),
        (prompts, lines[1].replace('"found": true', '"found": false'), "line 2 is not of a checkpoint"),
        (prompts, json.dumps(prompt_fields(prompts[0])), "line 2 is not of a checkpoint"),
    ]:
        path.write_text(f"{lines[0]}\n{line}\n")
        with pytest.raises(InputError, match=message):
            PasskeyCheckpoint(path, {"a": 1}, prompts_there, resume=True)
