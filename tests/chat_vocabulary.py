"""A small vocabulary with the control tokens of several chat formats, some of which overlap."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from synapse_jax.io.chat import ChatPrompt, ChatTemplate, RenderLimits, encode_chat, render, worker
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer
from tests.pair_vocabulary import pair_vocabulary

CONTROL = (
    "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|end|>\n", "|><|", "[INST]", "[/INST]", "<unk>",
)  # fmt: skip
"""Added to the pair vocabulary's `<|begin|>` (BOS), `<|im_start|>` and `<|im_end|>` (EOS)."""
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


def chat_metadata(pre: str = "llama-bpe", template: str | None = None, **changes: Any) -> dict[str, Any]:
    """Metadata of the vocabulary; with `llama-bpe` it adds BOS, with `gpt-2` it does not."""
    metadata = pair_vocabulary(["Hello world, this is it"], pre)
    metadata["tokenizer.ggml.tokens"] += CONTROL
    metadata["tokenizer.ggml.token_type"] += [3] * (len(CONTROL) - 1) + [2]
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    return {**metadata, **changes}


def chat_tokenizer(pre: str = "llama-bpe") -> Tokenizer:
    return build_tokenizer(chat_metadata(pre), source="tiny.gguf")


def chat_template(text: str, **tokens: str) -> ChatTemplate:
    special = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>", **tokens}
    return ChatTemplate(text, "tiny.gguf", special_tokens=special)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat(template: str, *messages: dict[str, Any], pre: str = "gpt-2", **options: Any) -> ChatPrompt:
    """A conversation, `Hello` if none is given, through a template with the small vocabulary."""
    options.setdefault("now", NOW)
    return encode_chat(chat_tokenizer(pre), chat_template(template), messages or (user("Hello"),), **options)


def controls(prompt: ChatPrompt, tokenizer: Tokenizer) -> list[str]:
    """The control tokens of a prompt, in order."""
    texts = [tokenizer.token_text(index) for index in prompt.ids]
    return [text for text in texts if text in tokenizer.control_texts]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renders in this process, with neither limits nor start-up time: for templates that are known."""

    def ask(request: bytes, source: str, limits: RenderLimits) -> dict[str, Any]:
        return json.loads(json.dumps(worker.render(json.loads(request))))

    monkeypatch.setattr(render, "_ask", ask)
