"""Long-context cases: their tokens, where facts lie, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.evals.tasks.case import Case
from synapse_jax.evals.tasks.draws import Draws
from synapse_jax.evals.tasks.filler import make_filler
from synapse_jax.evals.tasks.haystack import Haystack
from synapse_jax.evals.tasks.names import OWN, RULER
from synapse_jax.evals.tasks.plan import QualityPlan, parse_list
from synapse_jax.evals.tasks.prompt import PromptWriter
from synapse_jax.io.chat import ChatTemplate
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer
from tests.chat_vocabulary import in_process
from tests.spm_vocabulary import spm_vocabulary
from tests.tiny import Tiny, tiny_metadata

__all__ = ["in_process"]

pytestmark = pytest.mark.usefixtures("in_process")

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime.datetime(2026, 1, 1)
TEMPLATE = ChatTemplate(
    "{{ bos_token }}{{ bos_token }}{% for m in messages %}<|im_end|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    "<|im_end|>assistant\n",
    "tiny.gguf",
    special_tokens={"bos_token": "<|endoftext|>"},
)
WORDS = "the rain in the air or a tin hat on an inn there".split()


def tiny_tokenizer(*, bos: bool) -> Tokenizer:
    metadata = tiny_metadata(Tiny())
    return build_tokenizer({**metadata, "tokenizer.ggml.add_bos_token": bos}, source="tiny.gguf")


TOKENIZER = tiny_tokenizer(bos=True)
WRITER = PromptWriter(TOKENIZER, None, NOW)


def prose(sentences: int) -> str:
    """Sentences of different lengths, some of them on lines of their own, some indented."""
    random = np.random.RandomState(5)
    texts = []
    for index in range(sentences):
        words = " ".join(random.choice(WORDS, random.randint(3, 14)))
        texts.append(words + random.choice([". ", ".\n", "\n    ", "?\n\n"]) + (f"{index} " * (index % 3)))
    return "".join(texts)


def haystack(sentences: int = 900) -> Haystack:
    return Haystack(prose(sentences).strip() + "\n", (("prose", "0"),))


def cases(plan: QualityPlan, writer: PromptWriter = WRITER, text: Haystack | None = None) -> list[Case]:
    filler = make_filler(text or haystack(), writer.tokenizer, max(plan.lengths))
    return list(plan.cases(filler, writer))


PLAN = QualityPlan(tuple(OWN), (900, 2048), (0.0, 0.25, 0.5, 1.0), seed=3, samples=2)
WRITERS = {
    "plain": WRITER,
    "no BOS": PromptWriter(tiny_tokenizer(bos=False), None, NOW),
    "template": PromptWriter(TOKENIZER, TEMPLATE, NOW),
}


@pytest.mark.parametrize("ruler", [False, True], ids=["own", "ruler"])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_cases_are_deterministic_and_hold_their_answers(writer, ruler):
    plan = dataclasses.replace(PLAN, ruler=ruler, samples=1 if writer.template else 2)
    made = cases(plan, writer)
    assert [(case.name, case.ids, case.answers) for case in made] == [
        (case.name, case.ids, case.answers) for case in cases(plan, writer)
    ]
    other = cases(dataclasses.replace(plan, seed=4), writer)
    assert all(a.ids != b.ids and a.answers != b.answers for a, b in zip(made, other, strict=True))
    assert len({case.answers for case in made}) == len(made)
    bos, tokenizer = writer.tokenizer.bos_id, writer.tokenizer
    for case in made:
        # Within the length, and near it: less than the longest sentence and a few tokens are left.
        used = len(case.ids) + case.answer_tokens
        assert case.name.length - case.filler[1] - 8 <= used <= case.name.length
        assert case.ids.count(bos) == (1 if tokenizer.add_bos else 0)
        assert not tokenizer.add_bos or case.ids[0] == bos
        # Decoded and searched: each fact once, at the token that the case names.
        for at in case.planted:
            text = tokenizer.decode(case.ids[at:])
            assert text.lstrip().startswith(("The secret", "The variable", "One of the special", "VAR "))
        text = tokenizer.decode(case.ids)
        if case.depth is None:
            assert all(text.count(answer) in (1, 2) for answer in case.answers) and len(case.answers) == 5
        else:
            (answer,) = case.answers
            start = tokenizer.decode(case.ids[case.planted[0] :]).lstrip()
            assert text.count(answer) == 1 and answer in start[: start.index(answer) + 20].split("\n")[0]
            assert len(answer) == (7 if ruler else 5)
        assert len(case.decoys) == (3 if case.name.task == "multikey" else 0)
        assert all(text.count(decoy) == 1 for decoy in case.decoys)


def test_prompts_are_the_same_in_another_process_under_another_hash_seed():
    """The project's own haystack, in two processes."""
    code = (
        "import tests.unit.test_quality_cases as t; from synapse_jax.evals.tasks.haystack import *;"
        "print(*([c.sha256 for c in t.cases(t.PLAN, text=x)] for x in (t.haystack(), project_haystack())))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1 and said.pop().count(b"'") == 2 * 2 * 2 * 2 * (4 + 4 + 1)


def test_a_draw_is_pinned():
    """The same in every version of Python and numpy: recorded runs can be made again."""
    draws = Draws("0/needle/4096/0.5/0", "text")
    drawn = (draws.below(10**6), draws.number(5), draws.name(5), draws.key(("a", "b"), ("c", "d")))
    assert drawn == (246127, "35154", "BLYCE", "b d")
    taken = Draws("x", "12345")
    assert "12345" not in {taken.number(5) for _ in range(50)}
    with pytest.raises(InputError, match="no number of 1 digits"):
        digits = Draws("y", "0123456789")
        digits.number(1)


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_depth_controls_needle_placement(writer):
    depths = (0.0, 0.1, 0.33, 0.5, 0.9, 1.0)
    plan = QualityPlan(("needle", "multikey"), (1200, 2500), depths, seed=1)
    by_length: dict[tuple, list[int]] = {}
    for case in cases(plan, writer):
        total, longest = case.filler
        assert case.name.depth is not None and case.depth is not None
        # Counted here from the tokens, without the other facts: within one sentence of what was asked for.
        assert abs(case.depth - case.name.depth) * total <= longest
        text = writer.tokenizer.decode(case.ids)
        statement = text[text.index("The secret number") :].split("\n")[0].split(". ")[0]
        assert statement in text
        before = text[: text.index(case.answers[0])]
        whole = text.rindex("\n\nWhat is")
        if case.name.task == "needle":
            assert abs(len(before) / whole - case.name.depth) < 0.12
        by_length.setdefault((case.name.task, case.name.length), []).append(case.planted[0])
    assert all(places == sorted(places) and len(set(places)) == 6 for places in by_length.values())


def test_variables_are_set_before_they_are_used():
    for case in cases(QualityPlan(("tracking",), (900, 2048), (0.5,), samples=5)):
        assert list(case.planted) == sorted(case.planted) and case.depth is None


def test_haystack_shorter_than_the_budget_fails():
    short = haystack(40)
    tokens = len(TOKENIZER.encode(short.text, add_special=False))
    with pytest.raises(InputError, match=rf"the haystack has {tokens} tokens, \d+ are to be filled"):
        cases(QualityPlan(("needle",), (4096,), (0.5,)), text=short)
    assert cases(QualityPlan(("needle",), (tokens + 100,), (0.5,)), text=short)


@pytest.mark.parametrize("ruler", [False, True])
@pytest.mark.parametrize("task", OWN)
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_short_lengths_are_refused_and_every_generator_ends(writer, task, ruler):
    made = 0
    for length in (1, 32, 64, 128, 256, 300, 400, 500, 700):
        plan = QualityPlan((task,), (length,), (0.5,), ruler=ruler)
        try:
            (case,) = cases(plan, writer)
        except InputError as error:
            assert f"length {length} is too short for {task}" in str(error) and not made
        else:
            assert len(case.ids) + case.answer_tokens <= length
            made += 1
    assert made


def test_answers_take_their_tokens_from_the_length():
    few, many = (cases(QualityPlan(("needle",), (1200,), (0.5,), answer_tokens=n))[0] for n in (1, 400))
    assert len(few.ids) > 1150 and 700 < len(many.ids) <= 800
    assert {name: task.answer_tokens for name, task in RULER.items()} == {
        "needle": 128,
        "multikey": 128,
        "tracking": 30,
    }


def test_rulers_words():
    case = cases(QualityPlan(("needle",), (1200,), (0.5,), ruler=True))[0]
    text = TOKENIZER.decode(case.ids)
    assert "One of the special magic numbers for " in text and f" is: {case.answers[0]}." in text
    case = cases(QualityPlan(("tracking",), (1200,), (0.5,), ruler=True))[0]
    text = TOKENIZER.decode(case.ids)
    assert all(f"VAR {b} = VAR {a}" in text for a, b in zip(case.answers, case.answers[1:], strict=False))
    assert text.endswith("they are:")


def test_a_sentence_piece_vocabulary_leaves_out_what_it_cannot_give_back():
    tokenizer = build_tokenizer(spm_vocabulary(), source="spm.gguf")
    # Its user-defined token of two spaces begins a text of its own, with a space more: no indentation here.
    odd = Haystack("A line with ▁ in it.\n" + prose(300).replace("\n    ", "\n").strip() + "\n", ())
    filler = make_filler(odd, tokenizer, 1500)
    assert filler.left_out == 1 and "▁" not in "".join(filler.sentences)
    for case in filler_cases(filler, tokenizer):
        assert case.ids.count(tokenizer.bos_id) == 1


def filler_cases(filler, tokenizer) -> list[Case]:
    plan = QualityPlan(("needle",), (1400,), (0.0, 0.5, 1.0))
    return list(plan.cases(filler, PromptWriter(tokenizer, None, NOW)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tasks": ("needles",)}, "there is no task 'needles'"),
        ({"tasks": ("needle", "needle")}, "needle is there twice"),
        ({"lengths": (0,)}, "length 0 is below 1"),
        ({"lengths": (900, 900)}, "900 is there twice"),
        ({"depths": (1.5,)}, "depth 1.5 is not between 0 and 1"),
        ({"depths": (float("nan"),)}, "depth nan"),
        ({"depths": ()}, "no depths"),
        ({"seed": -1}, "seed -1"),
        ({"samples": 0}, "samples 0"),
        ({"answer_tokens": 0}, "answer tokens 0"),
    ],
)
def test_plans_that_cannot_be_are_refused(changed, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(PLAN, **changed)


def test_lists_of_numbers():
    assert parse_list("4096, 8192", "lengths", int, "4096,8192") == (4096, 8192)
    for text in ("", "4096,", "x", "4_0", "１"):
        with pytest.raises(InputError, match="give 4096"):
            parse_list(text, "lengths", int, "4096")


def test_a_prompt_that_grows_with_its_text_still_fits():
    """A template that adds tokens to long texts only: what was counted before is too little."""
    grow = (
        "{% for m in messages %}{% if m.content|length > 700 %}"
        + "x" * 90
        + "{% endif %}{{ m.content }}\n{% endfor %}"
    )
    writer = PromptWriter(TOKENIZER, dataclasses.replace(TEMPLATE, text=grow), NOW)
    for case in cases(QualityPlan(("needle", "tracking"), (1200,), (0.0, 0.5, 1.0)), writer):
        assert len(case.ids) + case.answer_tokens <= 1200 and "x" * 90 in TOKENIZER.decode(case.ids)
