"""Chat templates: a conversation to token ids, with the template that comes with a model.

    template = read_chat_template(metadata, "model.gguf")
    prompt = encode_chat(tokenizer, template, [{"role": "user", "content": "Hello"}])

Templates are other people's programs and messages other people's text: the
first run in a child process with limits (`render`), the second never become
control tokens (`guard`).
"""

from __future__ import annotations

from synapse_jax.io.chat.encode import ChatPrompt, encode_chat
from synapse_jax.io.chat.messages import check_messages, parse_messages, read_messages
from synapse_jax.io.chat.render import RenderLimits
from synapse_jax.io.chat.template import (
    ChatTemplate,
    MissingTemplate,
    read_chat_template,
    read_folder_template,
)

__all__ = [
    "ChatPrompt",
    "ChatTemplate",
    "MissingTemplate",
    "RenderLimits",
    "check_messages",
    "encode_chat",
    "parse_messages",
    "read_chat_template",
    "read_folder_template",
    "read_messages",
]
