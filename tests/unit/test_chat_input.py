"""Messages as files hold them, and where model files keep templates."""

from __future__ import annotations

import json

import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.chat import (
    check_messages,
    parse_messages,
    read_chat_template,
    read_folder_template,
    read_messages,
)
from tests.chat_vocabulary import chat, chat_metadata, user

DEEP = "[" * 100 + "]" * 100
BAD = {
    "no JSON": ('[{"role": "user",\n "content": }]', "not valid JSON: Expecting value at line 2, column 13"),
    "nothing": ("", "not valid JSON: Expecting value at line 1, column 1"),
    "NUL": (
        '[{"role": "user", "content": "a\0"}]',
        "not valid JSON: Invalid control character at line 1, column 32",
    ),
    "very deep": ("[" * 100_000, "not valid JSON: lists and objects nest too deeply"),
    "NaN": ('[{"role": "user", "content": "a", "x": NaN}]', "NaN is not a number of JSON"),
    "object": ('{"role": "user"}', "is an object, not a list of messages"),
    "text": ('"hello"', "is 'hello', not a list of messages"),
    "empty": ("[]", "holds no messages"),
    "no object": ('["hello"]', 'message 0 is \'hello\', not an object with "role" and "content"'),
    "no role": ('[{"content": "a"}]', "message 0 has no role"),
    "role number": ('[{"role": 1, "content": "a"}]', "message 0: role is 1, not a name"),
    "role null": ('[{"role": null, "content": "a"}]', "message 0: role is null, not a name"),
    "role blank": ('[{"role": " ", "content": "a"}]', "message 0: role is ' ', not a name"),
    "second": ('[{"role": "user", "content": "a"}, {"role": "user"}]', "message 1 ('user') has no content"),
    "content number": (
        '[{"role": "user", "content": 5}]',
        "content is 5, not a string or a list of text parts",
    ),
    "content object": ('[{"role": "user", "content": {}}]', "content is an object, not"),
    "no parts": ('[{"role": "user", "content": []}]', "content is an empty list"),
    "part": ('[{"role": "user", "content": ["a"]}]', "content[0] is 'a', not {\"type\": \"text\""),
    "image": (
        '[{"role": "user", "content": [{"type": "image"}]}]',
        "type is 'image'; only 'text' can be read",
    ),
    "part number": (
        '[{"role": "user", "content": [{"type": "text", "text": 1}]}]',
        "content[0]: text is 1, not",
    ),
    "NUL escape": ('[{"role": "user", "content": "ab\\u0000"}]', "message 0: content: character 2 is NUL"),
    "surrogate": ('[{"role": "user", "content": "\\ud800"}]', "character 0 is a lone surrogate U+D800"),
    "deep": (f'[{{"role": "user", "content": "a", "x": {DEEP}}}]', "nests more than 64"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_messages_are_refused(name):
    text, message = BAD[name]
    with pytest.raises(InputError) as caught:
        parse_messages(text, "m.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("m.json: ")
    assert str(caught.value).isprintable()


def test_messages_of_a_file(tmp_path):
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Bref."}]},
        user("Ça va ?\n"),
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}], "name": None},
    ]
    path = tmp_path / "m.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(messages, ensure_ascii=False).encode())
    last = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}
    assert read_messages(path) == [*messages[:2], last]
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        read_messages(tmp_path / "none.json")
    path.write_bytes(b'["\xff"]')
    with pytest.raises(InputError, match=r"m\.json: not valid UTF-8: byte 0xFF at offset 2"):
        read_messages(path)


def test_python_values_are_checked_too():
    for value in ((1, 2), {1}, b"a"):
        with pytest.raises(InputError, match=r"x is (tuple|set|bytes), which JSON does not have"):
            check_messages([{**user("a"), "x": value}], "messages")
    with pytest.raises(InputError, match="the key 1 is not a string"):
        check_messages([{**user("a"), "x": {1: 2}}], "messages")
    with pytest.raises(InputError, match=r"^messages: message 0 has no role"):
        chat("a", {"content": "b"})


def test_template_of_a_file():
    template = read_chat_template(chat_metadata(template="a{{ bos_token }}"), "f.gguf")
    assert (template.text, template.name, template.source) == ("a{{ bos_token }}", "default", "f.gguf")
    assert template.special_tokens == {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}


@pytest.mark.parametrize("name", [None, "default", "rag"])
def test_file_without_template(name):
    with pytest.raises(InputError, match=r"^f\.gguf: has no chat template: "):
        read_chat_template(chat_metadata(), "f.gguf", name)


def test_named_templates_of_a_file():
    named = {"tokenizer.chat_templates": ["rag", "tool_use"], "tokenizer.chat_template.rag": "R",
             "tokenizer.chat_template.tool_use": "T"}  # fmt: skip
    metadata = chat_metadata(template="D", **named)
    names = [None, "default", "rag", "tool_use"]
    assert [read_chat_template(metadata, "f", name).text for name in names] == ["D", "D", "R", "T"]
    with pytest.raises(
        InputError, match=r"^f: has no chat template 'x'; it has 3: 'default', 'rag', 'tool_use'"
    ):
        read_chat_template(metadata, "f", "x")
    with pytest.raises(InputError, match=r"no chat template 'default'; it has 2: 'rag', 'tool_use'"):
        read_chat_template(chat_metadata(**named), "f")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.chat_template": 5}, "tokenizer.chat_template is 5, not a text"),
        ({"tokenizer.chat_template": b"\xff"}, "tokenizer.chat_template is b'.xff', not a text"),
        ({"tokenizer.chat_templates": "rag"}, "chat_templates is 'rag', not a list"),
        ({"tokenizer.chat_templates": ["rag"]}, "names 'rag', which has no 'tokenizer.chat_template.rag'"),
        ({"tokenizer.chat_templates": [3]}, "names 3, which has no"),
    ],
)
def test_bad_templates_of_a_file(changes, message):
    with pytest.raises(InputError, match=rf"^f\.gguf: .*{message}"):
        read_chat_template(chat_metadata(**changes), "f.gguf")


def _folder(tmp_path, config=None, **files):
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(
            config if isinstance(config, str) else json.dumps(config)
        )
    for name, text in files.items():
        path = tmp_path / (name.replace("__", "/") + ".jinja")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_template_of_a_folder(tmp_path):
    config = {"chat_template": "C", "bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    template = read_folder_template(_folder(tmp_path, config))
    assert (template.text, template.special_tokens) == ("C", {"bos_token": "<s>", "eos_token": "</s>"})
    assert template.source.endswith("tokenizer_config.json")
    template = read_folder_template(_folder(tmp_path, chat_template="J"))
    assert (template.text, template.special_tokens["bos_token"]) == ("J", "<s>")
    assert template.source.endswith("chat_template.jinja")
    _folder(tmp_path, additional_chat_templates__rag="R")
    assert read_folder_template(tmp_path, "rag").text == "R"
    with pytest.raises(InputError, match="no chat template 'x'; it has 2: 'rag', 'default'"):
        read_folder_template(tmp_path, "x")


def test_list_of_templates_of_a_folder(tmp_path):
    both = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]
    folder = _folder(tmp_path, {"chat_template": both})
    assert [read_folder_template(folder, name).text for name in (None, "rag")] == ["D", "R"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "has no chat template: "),
        ({}, "has no chat template: "),
        ({"chat_template": None}, "has no chat template: "),
        ({"chat_template": 5}, "chat_template is 5, not a text or a list"),
        ({"chat_template": [{"template": "a"}]}, r"chat_template\[0\] is not \{"),
        ({"chat_template": [{"name": "a", "template": 1}]}, r"chat_template\[0\].template is 1, not a text"),
        ("[]", "is not a JSON object"),
        ("{\n", "not valid JSON: .* at line 2, column 1"),
    ],
)
def test_bad_folders(tmp_path, config, message):
    with pytest.raises(InputError, match=message) as caught:
        read_folder_template(_folder(tmp_path, config))
    assert str(tmp_path) in str(caught.value)
