"""Files of prompts, a JSON object a line."""

from __future__ import annotations

import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.prompts_file import read_prompts_file
from synapse_jax.io.tokens_file import LARGEST_ID


def test_texts_and_token_ids_in_order(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(
        '\ufeff{"prompt": "Heron \u2028 é\\n"}\r\n\n   \n{"tokens": [1, 0, 2]}\n{"prompt": ""}'.encode()
    )
    prompts = read_prompts_file(path)
    assert [(prompt.text, prompt.tokens) for prompt in prompts] == [
        ("Heron \u2028 é\n", ()),
        (None, (1, 0, 2)),
        ("", ()),
    ]
    assert [prompt.source for prompt in prompts] == [f"{path}: line {number}" for number in (1, 4, 5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("heron", "line 2"),
        ('{"prompt": "a"', "line 2"),
        ('{"prompt": "a"} {"prompt": "b"}', "line 2"),
        ('{"prompt": "a", "prompt": "b"}', "line 2: not valid JSON: 'prompt' is there twice"),
        ("[1, 2]", "line 2: is not one object"),
        ('"text"', "line 2: is not one object"),
        ("null", "line 2: is not one object"),
        ("{}", "line 2: is not one object"),
        ('{"text": "a"}', "line 2: is not one object"),
        ('{"prompt": "a", "tokens": [1]}', "line 2: is not one object"),
        ('{"prompt": 7}', "line 2: prompt is not a string"),
        ('{"prompt": null}', "line 2: prompt is not a string"),
        ('{"tokens": []}', "line 2: tokens is not a list of at least one token id"),
        ('{"tokens": "1 2"}', "line 2: tokens is not a list of at least one token id"),
        ('{"tokens": [1, -1]}', "line 2: token 1 is -1, not a decimal id"),
        ('{"tokens": [1.0]}', "line 2: token 0 is 1.0, not a decimal id"),
        ('{"tokens": [true]}', r"line 2: token 0 is True, not a decimal id"),
        ('{"tokens": [[1]]}', "line 2: token 0 is "),
        (f'{{"tokens": [{LARGEST_ID + 1}]}}', f"line 2: token 0 is {LARGEST_ID + 1}, not"),
        ('{"tokens": [1e400]}', "line 2"),
        ('{"tokens": [NaN]}', "line 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(InputError, match=message) as refusal:
        read_prompts_file(path)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_a_file_without_prompts_is_refused(tmp_path, content):
    path = tmp_path / "prompts.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="holds no prompts"):
        read_prompts_file(path)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(InputError, match=str(path)):
        read_prompts_file(path)
    with pytest.raises(InputError, match="missing"):
        read_prompts_file(tmp_path / "missing")
