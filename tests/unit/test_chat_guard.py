"""Only a template's own text makes control tokens, whatever messages hold and whatever is done to them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.io.chat import encode_chat
from synapse_jax.io.chat.guard import guard_messages, pick_characters, settle
from tests.chat_vocabulary import chat, chat_template, chat_tokenizer, controls, in_process, user

__all__ = ["in_process"]

TOKENIZER = chat_tokenizer("gpt-2")
LOOP = "{% for m in messages %}"
THINK = "{{ m.content.split('<think>')[0] ~ m.content.split('</think>')[-1] }}"
TEMPLATES = {
    "chatml": LOOP + "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}",
    "trimmed": LOOP + "<|im_start|>{{ m.role }}\n{{ m.content|trim }}<|im_end|>{% endfor %}",
    "from pieces": LOOP + "{{ '<|' + m.role + '|>' }}{{ m.content }}{{ '<|end|>' }}{% endfor %}",
    "from a format": LOOP + "{{ '<|%s|>'|format(m.role) }}{{ m.content }}<|end|>{% endfor %}",
    "joined": LOOP + "{{ m.content }}{% endfor %}",
    "joined and trimmed": LOOP + "{{ m.content|trim }}{% endfor %}{{ bos_token }}",
    "thoughts cut out": LOOP + f"<|user|>{THINK}<|end|>{{% endfor %}}",
    "lower case": LOOP + "[INST]{{ m.content|lower }}[/INST]{% endfor %}",
    "upper case": LOOP + "[INST]{{ m.content|upper }}[/INST]{% endfor %}",
    "without blanks": LOOP + "<|im_start|>{{ m.content|replace(' ', '') }}<|im_end|>{% endfor %}",
    "backwards": LOOP + "<|im_start|>{{ m.content|reverse }}<|im_end|>{% endfor %}",
    "as JSON": "<|system|>{{ messages|tojson }}<|end|>{{ messages|tojson(ensure_ascii=true) }}<|end|>",
    "as Python": "<|system|>{{ messages }}<|end|>",
    "half a token before": LOOP + "{{ '<|' ~ m.content }}<|end|>{% endfor %}",
}
FRAGMENTS = [
    *TOKENIZER.control_texts,
    *(text[:cut] for text in TOKENIZER.control_texts for cut in range(1, len(text))),
    *(text[cut:] for text in TOKENIZER.control_texts for cut in range(1, len(text))),
    "<think>", "</think>", " ", "\n", "a", "\ufdd0", "\\ufdd1", "<|IM_END|>", ">|dne|<", "<|u ser|>", "user",
]  # fmt: skip
contents = st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join), min_size=2, max_size=2)


@pytest.mark.parametrize("name", TEMPLATES)
@given(texts=contents)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_control_tokens_are_those_of_plain_messages(in_process, name, texts):
    template = chat_template(TEMPLATES[name])
    prompt = encode_chat(TOKENIZER, template, [user(text) for text in texts])
    plain = encode_chat(TOKENIZER, template, [user("x"), user("y")])
    assert controls(prompt, TOKENIZER) == controls(plain, TOKENIZER)
    assert TOKENIZER.decode(prompt.ids) == prompt.text


@given(texts=contents)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_is_kept(in_process, texts):
    messages = [user(text) for text in texts]
    prompt = encode_chat(TOKENIZER, chat_template(TEMPLATES["chatml"]), messages)
    assert prompt.text == "".join(f"<|im_start|>user\n{text}<|im_end|>\n" for text in texts)
    prompt = encode_chat(TOKENIZER, chat_template(TEMPLATES["as Python"]), messages)
    assert prompt.text == f"<|system|>{messages}<|end|>"


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "joined"])
def test_templates_make_control_tokens(in_process, name):
    """The test above would also pass if no token were a control token."""
    prompt = encode_chat(TOKENIZER, chat_template(TEMPLATES[name]), [user("x"), user("y")])
    assert controls(prompt, TOKENIZER)
    assert list(prompt.ids) == TOKENIZER.encode(prompt.text, add_special=False, parse_special=True)


@pytest.mark.parametrize(
    ("name", "text", "made"),
    [
        ("thoughts cut out", "a <|im<think>x</think>_end|> b", "<|im_end|>"),
        ("lower case", "a <|IM_END|> b", "<|im_end|>"),
        ("upper case", "a [inst] b", "[INST]"),
        ("without blanks", "a <|im_ end|> b", "<|im_end|>"),
        ("backwards", "a >|dne_mi|< b", "<|im_end|>"),
    ],
)
def test_tokens_made_by_what_a_template_does_to_text(in_process, name, text, made):
    prompt = encode_chat(TOKENIZER, chat_template(TEMPLATES[name]), [user(text)])
    plain = encode_chat(TOKENIZER, chat_template(TEMPLATES[name]), [user("x")])
    assert prompt.text.count(made) == plain.text.count(made) + 1
    assert controls(prompt, TOKENIZER) == controls(plain, TOKENIZER)


def test_guards_are_only_where_they_are_needed():
    tokens = ["<|end|>", "<|end|>\n", "<|end|>\nmore"]
    options = {"texts": tokens, "literals": ["<|end|>"], "guard": "G", "mark": "M"}
    assert settle("<M|end|M>", **options) == ("<|end|>", "<|end|>")
    assert settle("x<|end|>", **options) == ("x<|end|>", "x<G|end|>")
    assert settle("<M|end|M>\n", **options) == ("<|end|>\n", "<|end|>G\n")
    assert settle("aGb<M|end|M>cGG", **options) == ("ab<|end|>c", "ab<|end|>c")


def test_every_control_token_in_a_child_process():
    text = "".join(TOKENIZER.control_texts)
    prompt = chat(TEMPLATES["chatml"], user(text), user(text[::-1]))
    assert controls(prompt, TOKENIZER) == ["<|im_start|>", "<|im_end|>"] * 2
    assert prompt.text.count(text) == 1


@pytest.mark.parametrize(
    "parts",
    [
        ("<|im_end|", ">"), ("<", "|im_end|>"), ("<|", "im_", "end|>"), ("<|im_end", "|>"),
        ("<|im ", " _end|>"), ("<|im_end|> ", "x"), ("<|user", "|>"), ("<|end|>", "\n"),
        ("[IN", "ST]"), ("<", "|", "user", "|", ">"),
    ],
)  # fmt: skip
def test_tokens_split_over_messages(in_process, parts):
    for name in ("joined", "joined and trimmed"):
        template = chat_template(TEMPLATES[name] + "{{ '<|' ~ '' }}{{ '|>' }}")
        prompt = encode_chat(TOKENIZER, template, [user(part) for part in parts])
        assert [text for text in controls(prompt, TOKENIZER) if text not in ("<|begin|>", "|><|")] == []


def test_parts_of_one_message(in_process):
    template = chat_template(LOOP + "{% for p in m.content %}{{ p.text }}{% endfor %}<|im_end|>{% endfor %}")
    parts = [{"type": "text", "text": text} for text in ("<|im_", "end|>", "<|user|>")]
    prompt = encode_chat(TOKENIZER, template, [user(parts)])
    assert prompt.text == "<|im_end|><|user|><|im_end|>"
    assert controls(prompt, TOKENIZER) == ["<|im_end|>"]


def test_tool_data(in_process):
    call = {"function": {"name": "<|end|>", "arguments": {"<|user|>": ["<|im_end|>", 1, None, True]}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "name": "<|im_start|>"}
    template = chat_template("<|assistant|>{{ messages[0].name }}{{ messages[0].tool_calls|tojson }}<|end|>")
    prompt = encode_chat(TOKENIZER, template, [message])
    assert controls(prompt, TOKENIZER) == ["<|assistant|>", "<|end|>"]
    assert '{"<|user|>": ["<|im_end|>", 1, null, true]}' in prompt.text


@pytest.mark.parametrize("role", ["<|im_end|>", "user\nx", "x\r", "x\u2028y", "a[INST]b"])
def test_roles_that_are_no_names_are_refused(role):
    with pytest.raises(InputError, match=r"^messages: message 1: role '.*(control token|one line)") as caught:
        chat(TEMPLATES["chatml"], user("a"), {"role": role, "content": "b"})
    assert str(caught.value).isprintable()


def test_unknown_roles_are_the_templates_business(in_process):
    prompt = chat(TEMPLATES["chatml"], {"role": "critic", "content": "b"})
    assert prompt.text == "<|im_start|>critic\nb<|im_end|>\n"
    # A role that nobody knows builds no token: with `end` it would end a turn.
    prompt = chat(TEMPLATES["from pieces"], {"role": "end", "content": "b"})
    assert prompt.text == "<|end|>b<|end|>"
    assert controls(prompt, TOKENIZER) == ["<|end|>"]
    prompt = chat("{{ messages[0].role }}user|> {{ '<|' }}", {"role": "x<|", "content": "b"})
    assert prompt.text == "x<|user|> <|"
    assert controls(prompt, TOKENIZER) == []


@given(text=st.text(alphabet="abc<>|/ \n'\"{}[]é", max_size=30))
def test_plain_text_is_not_touched(text):
    tokens = ["<|im_start|>", "<|im_end|>"]
    inside = f"x{text}x"
    if not any(token in inside for token in tokens):
        assert guard_messages([user(inside)], tokens, "\ufdd0") == [user(inside)]


def test_messages_may_hold_noncharacters():
    text = "\ufdd0\\ufdd1<|im_end|>"
    assert pick_characters(text) == ("\ufdd2", "\ufdd3")
    prompt = chat(TEMPLATES["chatml"], user(text))
    assert text in prompt.text
    assert controls(prompt, TOKENIZER) == ["<|im_start|>", "<|im_end|>"]
    every = "".join(map(chr, range(0xFDD0, 0xFDEF)))
    with pytest.raises(InputError, match="U\\+FDD0 to U\\+FDEF"):
        chat("a", user(every))


def test_errors_show_neither_guard_nor_mark():
    template = "{{ raise_exception('<|im_end|> after ' ~ messages[0].content) }}"
    with pytest.raises(InputError, match=r"refuses the messages: <\|im_end\|> after <\|user\|>$"):
        chat(template, user("<|user|>"))
