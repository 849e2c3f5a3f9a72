"""A conversation to token ids."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Sequence
from typing import Any

from synapse_jax.io.chat.guard import guard_messages, pick_characters, settle
from synapse_jax.io.chat.messages import check_messages
from synapse_jax.io.chat.render import RenderLimits, render_template
from synapse_jax.io.chat.template import ChatTemplate
from synapse_jax.io.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class ChatPrompt:
    """A conversation as a model gets it."""

    ids: tuple[int, ...]
    """Token ids, with one BOS in front where the vocabulary or the template wants one."""
    text: str
    """The text that the template made; a BOS that the vocabulary adds is not in it."""
    now: datetime.datetime
    """The time that the template could see. The same `now` gives the same ids again."""


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[dict[str, Any]],
    *,
    add_generation_prompt: bool = True,
    now: datetime.datetime | None = None,
    limits: RenderLimits | None = None,
) -> ChatPrompt:
    """Renders a conversation and encodes it.

    Only the template's own text makes control tokens; what messages hold stays
    text, whatever it looks like. The ids begin with one BOS where the vocabulary
    adds it or the template writes it, however often. No EOS is added. The template runs
    in a child process, which costs about 0.15 s.

    Args:
      tokenizer: The model's.
      template: Of `read_chat_template` or `read_folder_template`.
      messages: As `check_messages` takes them.
      add_generation_prompt: Whether the template is to open the assistant's turn.
      now: What `strftime_now` shows; None is the real local time, to the second.
      limits: What the template may use; None is RenderLimits().

    Raises:
      InputError: bad messages; a template that is wrong, refuses the messages or
        hits a limit. One line that names the file.
      RunError: the child process could not be started.
    """
    checked = check_messages(list(messages), "messages")
    moment = datetime.datetime.now().replace(microsecond=0) if now is None else now
    texts = tokenizer.control_texts
    guard, mark = pick_characters(template.text, json.dumps(checked, ensure_ascii=False), *texts)
    variables = {
        "messages": guard_messages(checked, texts, guard),
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
    }
    rendered = render_template(
        template.text,
        variables,
        source=template.source,
        special_tokens=template.special_tokens,
        control_texts=texts,
        guard=guard,
        mark=mark,
        now=moment,
        limits=limits or RenderLimits(),
    )
    text, guarded = settle(rendered.text, texts=texts, literals=rendered.literals, guard=guard, mark=mark)
    ids = tokenizer.encode(guarded, add_special=False, parse_special=True, guard=guard)
    bos = tokenizer.bos_id
    if bos is not None:
        begins = next((index for index, token in enumerate(ids) if token != bos), len(ids))
        # Several of a template's own are one: a model has seen no more.
        ids[:begins] = [bos] * (tokenizer.add_bos or begins > 0)
    return ChatPrompt(tuple(ids), text, moment)
