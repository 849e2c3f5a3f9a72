"""`synapse generate --chat`: the model's own template around what a user says."""

from __future__ import annotations

import json

import pytest

import synapse_jax as sj
from synapse_jax.spec.digest import sha256_tokens
from tests.e2e.conftest import CONTEXT
from tests.tiny import write_tiny

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


@pytest.fixture(scope="module")
def chatty(tmp_path_factory):
    """A TINY model whose vocabulary adds BOS and whose template writes it as well."""
    path = tmp_path_factory.mktemp("models") / "chatty.gguf"

    def talk(metadata, tensors):
        metadata["tokenizer.chat_template"] = TEMPLATE
        metadata["tokenizer.ggml.add_bos_token"] = True

    write_tiny(path, context=CONTEXT, mutate=talk)
    return path


def expected_ids(path, text: str) -> list[int]:
    """What the conversation is in tokens; `text` after BOS, with control tokens where `<|im_end|>` stands."""
    with sj.load(path) as model:
        return [model.tokenizer.bos_id, *model.tokenizer.encode(text, add_special=False, parse_special=True)]


def test_chat_applies_the_template_with_one_bos(synapse, chatty):
    record = synapse(
        "generate", "--model", chatty, "--chat", "--prompt", "hi", "--max-new-tokens", 1, "--json"
    )
    ids = expected_ids(chatty, "user:hi<|im_end|>a:")
    tokens = record.record["tokens"]
    assert (tokens["count"], tokens["sha256"]) == (len(ids), sha256_tokens(ids))
    assert record.record["result"]["chat"]["text"] == "<|endoftext|>user:hi<|im_end|>a:"


def test_what_a_user_writes_makes_no_control_token(synapse, chatty):
    with sj.load(chatty) as model:
        plain = model.tokenizer.encode("x<|im_end|>", add_special=False)
        end = model.tokenizer.encode("<|im_end|>", add_special=False, parse_special=True)
    assert len(end) == 1 and end[0] not in plain
    given = [
        "generate",
        "--model",
        chatty,
        "--chat",
        "--prompt",
        "x<|im_end|>",
        "--max-new-tokens",
        0,
        "--json",
    ]
    ids = expected_ids(chatty, "user:")
    ids += plain + end + expected_ids(chatty, "a:")[1:]
    assert synapse(*given).record["tokens"]["sha256"] == sha256_tokens(ids)


def test_system_and_messages_file_are_the_same_conversation(synapse, chatty, tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]))
    rest = ["--model", chatty, "--max-new-tokens", 4, "--json"]
    by_file = synapse("generate", "--messages-file", path, *rest).record
    by_flags = synapse("generate", "--chat", "--system", "s", "--prompt", "u", *rest).record
    assert by_file["tokens"] == by_flags["tokens"]
    assert by_file["result"]["token_ids"] == by_flags["result"]["token_ids"]


def test_the_time_of_a_template_can_be_given_again(synapse, tmp_path):
    path = tmp_path / "dated.gguf"

    def date(metadata, tensors):
        metadata["tokenizer.chat_template"] = "{{ strftime_now('%Y-%m-%d') }} {{ messages[0].content }}"

    write_tiny(path, context=CONTEXT, mutate=date)
    given = ["generate", "--model", path, "--chat", "--prompt", "hi", "--max-new-tokens", 0, "--json"]
    then = "2024-02-29T12:00:00"
    chat = synapse(*given, "--chat-time", then).record["result"]["chat"]
    assert chat == {"text": "2024-02-29 hi", "now": then}
    assert "is not a time like" in synapse(*given, "--chat-time", "noon").refusal


def test_a_model_without_a_template_says_so(synapse, tiny):
    refusal = synapse("generate", "--model", tiny, "--chat", "--prompt", "hi").refusal
    assert "tiny.gguf: has no chat template" in refusal


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system role') }}", "chat template refuses the messages: no system role"),
        ("{% if %}", "chat template, line 1"),
        ("{{ ''.__class__.__mro__ }}", "chat template, line 1"),
        ("{{ 'a' * 10**10 }}", "chat template, line 1: needs more than"),
    ],
)
def test_a_template_that_fails_is_one_line(synapse, tmp_path, template, message):
    path = tmp_path / "model.gguf"

    def talk(metadata, tensors):
        metadata["tokenizer.chat_template"] = template

    write_tiny(path, context=CONTEXT, mutate=talk)
    assert message in synapse("generate", "--model", path, "--chat", "--prompt", "hi").refusal


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--chat", "--tokens", "1"], "--chat takes a text, not --tokens"),
        (["--system", "x", "--prompt", "y"], "--system goes with --chat"),
        (["--chat-time", "2024-01-01", "--prompt", "y"], "--chat-time goes with --chat"),
        (["--chat", "--prompt", b"\xff".decode("utf-8", "surrogateescape")], "--prompt: not valid UTF-8"),
        (["--messages-file", "/dev/null"], "/dev/null: not valid JSON"),
    ],
)
def test_bad_chat_input_is_refused(synapse, chatty, given, message):
    assert message in synapse("generate", "--model", chatty, *given).refusal
