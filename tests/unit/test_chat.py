"""Chat templates: rendering as transformers does it, one BOS, and templates that must not do any harm."""

from __future__ import annotations

import datetime
import time

import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.chat import RenderLimits, encode_chat, read_chat_template, render
from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.tokenizer import build_tokenizer
from tests.chat_vocabulary import NOW, chat, chat_metadata, chat_tokenizer, user

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TWO = {"role": "system", "content": "Be brief."}, user("Hi")

# Rendered by transformers 5.24.0 (render_jinja_template) from the template of the Q4_1 file in the catalog.
SMOL = {
    True: (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
        'Face<|im_end|>\n<|im_start|>user\nHello, wörld! <b>"quoted"</b><|im_end|>\n<|im_start|>assistant\n'
    ),
    False: (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n What is 2+2?\n<|im_end|>\n"
        "<|im_start|>assistant\n4<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
    ),
}
SMOL_MESSAGES = {
    True: [user('Hello, wörld! <b>"quoted"</b>')],
    False: [
        {"role": "system", "content": "Be brief."},
        user(" What is 2+2?\n"),
        {"role": "assistant", "content": "4"},
        user("Why?"),
    ],
}


@pytest.mark.parametrize("open_turn", [True, False])
def test_smollm2_renders_as_in_transformers(smol_path, open_turn):
    with open_gguf(smol_path) as file:
        tokenizer = build_tokenizer(file.metadata, source=smol_path.name)
        template = read_chat_template(file.metadata, smol_path.name)
    prompt = encode_chat(tokenizer, template, SMOL_MESSAGES[open_turn], add_generation_prompt=open_turn)
    assert prompt.text == SMOL[open_turn]
    assert list(prompt.ids) == tokenizer.encode(prompt.text, parse_special=True)
    assert prompt.ids[:2] == (1, tokenizer.encode("system")[0])


@pytest.mark.parametrize("pre", ["llama-bpe", "gpt-2"])
@pytest.mark.parametrize(
    "start", ["", "{{ bos_token }}", "<|begin|>", "{{ '<|be' ~ 'gin|>' }}", "{{ bos_token }}<|begin|>"]
)
def test_exactly_one_bos(pre, start):
    prompt = chat(start + CHATML, pre=pre)
    bos = chat_tokenizer(pre).bos_id
    assert prompt.ids.count(bos) == (1 if start or pre == "llama-bpe" else 0)
    assert prompt.ids[:1] == (bos,) or not (start or pre == "llama-bpe")


def test_bos_written_by_a_user_is_not_one():
    prompt = chat("{{ messages[0].content }}", user("<|begin|>Hello"), pre="llama-bpe")
    plain = chat("{{ messages[0].content }}", user("Hello"), pre="llama-bpe")
    bos = chat_tokenizer().bos_id
    assert prompt.ids.count(bos) == plain.ids.count(bos) == 1
    assert prompt.ids[0] == bos
    assert prompt.text == "<|begin|>Hello"


def test_no_eos_is_added():
    metadata = chat_metadata(**{"tokenizer.ggml.add_eos_token": True})
    tokenizer = build_tokenizer(metadata, source="f")
    template = read_chat_template({**metadata, "tokenizer.chat_template": "{{ bos_token }}Hi"}, "f")
    assert tokenizer.eos_id not in encode_chat(tokenizer, template, [user("x")]).ids


FEATURES = {
    "trim blocks": ("{% if true %}\n  {% set x = 1 %}\na{{ x }}\n{% endif %}\nb", "a1\nb"),
    "break": ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
    "continue": ("{% for i in range(4) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "023"),
    "namespace": (
        "{% set n = namespace(a=1) %}{% for i in [2, 3] %}{% set n.a = i %}{% endfor %}{{ n.a }}",
        "3",
    ),
    "macro": ("{% macro f(a, b=2) %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f(1, b='x') }}", "<12><1x>"),
    "tojson": ("{{ {'b': '<é>', 'a': [1, none, true]}|tojson }}", '{"b": "<é>", "a": [1, null, true]}'),
    "tojson indent": ("{{ {'a': 1}|tojson(indent=2) }}", '{\n  "a": 1\n}'),
    "tojson ascii": ("{{ '<é>'|tojson(ensure_ascii=true) }}", '"<\\u00e9>"'),
    "time": ("{{ strftime_now('%d %b %Y %H:%M') }}", "02 Jan 2026 03:04"),
    "generation": ("a{% generation %}{{ messages[0].content }}{% endgeneration %}b", "aHellob"),
    "undefined": ("[{{ nothing }}{% if nothing is defined %}x{% endif %}{{ messages[0].name }}]", "[]"),
    "no tools": ("{{ tools is none }}{{ tools }}{% if tools %}x{% endif %}", "TrueNone"),
    "tokens": ("{{ bos_token }}{{ eos_token }}{{ pad_token }}", "<|begin|><|im_end|>"),
    "dict": ("{{ dict(a=1).items()|list }}", "[('a', 1)]"),
    "lipsum": ("{{ lipsum(n=1, html=false)|length > 9 }}", "True"),
    "late imports": ("{{ 'a b'|wordwrap(1) }} {{ ['x']|pprint }} {{ 'é'.encode('utf-8') }}", None),
}


@pytest.mark.parametrize("name", FEATURES)
def test_what_templates_use(name):
    template, expected = FEATURES[name]
    prompt = chat(template)
    assert expected is None or prompt.text == expected


def test_time_is_in_the_result():
    assert chat("{{ strftime_now('%Y') }}", now=datetime.datetime(1999, 5, 6)).now.year == 1999
    before = datetime.datetime.now().replace(microsecond=0)
    prompt = chat("{{ strftime_now('%Y-%m-%dT%H:%M:%S') }}", now=None)
    assert before <= prompt.now <= datetime.datetime.now()
    assert prompt.text == prompt.now.isoformat()


REFUSED = {
    "raise_exception": (
        "{{ raise_exception('No \\x1b system\nrole') }}",
        r"refuses.*: No \\x1b system\\nrole$",
    ),
    "system role": (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}",
        r"^tiny\.gguf: chat template refuses the messages: System role not supported$",
    ),
    "syntax": ("a\nb\n{% if %}", r"^tiny\.gguf: chat template, line 3: "),
    "unknown tag": ("\n{% frobnicate %}", r"line 2: Encountered unknown tag 'frobnicate'"),
    "undefined": ("\n\n{{ a.b.c }}", r"line 3: 'a' is undefined"),
    "type": ("\n{{ 'a' + 1 }}", r"line 2: TypeError: can only concatenate str"),
    "codec": ("{{ 'a'.encode('cp037') }}", "line 1: a template may not do this: import"),
    "include": ("\n{% include '/etc/passwd' %}", "line 2: include has no place"),
    "import": ("{% import 'os' as os %}", "line 1: import has no place"),
    "from": ("{% from 'os' import system %}", "line 1: fromimport has no place"),
    "extends": ("{% extends 'base' %}", "line 1: extends has no place"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_template_errors_are_one_line(name):
    template, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        chat(template, *TWO)
    assert str(caught.value).isprintable()


LOOP = "{% for i in range(99999) %}"
BOMBS = {
    "endless loop": (f"\n{LOOP}{LOOP}{LOOP}" + "{% endfor %}" * 3, "line 2: not done after 0.5 s"),
    "loop in C": ("{{ 7 ** (10 ** 9) }}", "not done after 0.5 s"),
    "memory": ("\n{{ 'a' * 10**10 }}", "line 2: needs more than 256 MiB of memory"),
    "doubling": (
        "{% set n = namespace(s='ab') %}" + LOOP + "{% set n.s = n.s + n.s %}{% endfor %}",
        "256 MiB",
    ),
    "join": ("{{ ((range(99)|list) * 999)|join('x' * 9999) }}", "256 MiB"),
    "format": ("{{ '%1000000000d' % 1 }}", "256 MiB"),
    "range": ("{{ range(10**12)|list }}", "Range too big"),
    "output": (LOOP + "{{ 'aaaaaaaaaaaaaaa' }}{% endfor %}", "longer than 1000000 characters"),
    "one string": ("{{ 'a' * 2000000 }}", "longer than 1000000 characters"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}", "calls itself too deeply"),
    "nesting": ("{{ " + "(" * 9999 + ")" * 9999 + " }}", "nests or calls itself too deeply"),
    "negations": ("{{ " + "-" * 20000 + "1 }}", "nests or calls itself too deeply"),
    "size": ("a" * 1_000_001, "has 1000001 characters; the limit is 1000000"),
    "message": ("{{ raise_exception('x' * 10**6) }}", "refuses the messages: x{300}…$"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_limits_hold(name):
    template, message = BOMBS[name]
    # A busy machine must not hit the limit of time before the one that is meant.
    seconds = 0.5 if "not done" in message else 20
    started = time.monotonic()
    with pytest.raises(InputError, match=message) as caught:
        chat(template, limits=RenderLimits(seconds=seconds, memory_bytes=256 * 2**20))
    # One more second before the process is killed, and a busy machine.
    assert time.monotonic() - started < seconds + 10
    assert len(str(caught.value)) < 500


def test_limits_are_positive():
    with pytest.raises(InputError, match="seconds is 0"):
        RenderLimits(seconds=0)


def test_child_sees_no_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    seen = {}
    run = render.subprocess.run

    def spy(*args, **options):
        seen.update(options)
        return run(*args, **options)

    monkeypatch.setattr(render.subprocess, "run", spy)
    assert chat("a").text == "a"
    assert "HF_TOKEN" not in seen["env"]
    assert seen["timeout"] == 6


def test_same_now_same_ids():
    template = "{{ strftime_now('%c') }}" + CHATML
    assert chat(template, now=NOW).ids == chat(template, now=NOW).ids
