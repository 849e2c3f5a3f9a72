"""What a user gives a command to work on: a model, and a text or tokens."""

from __future__ import annotations

import dataclasses
import datetime
import os
from typing import Any

import numpy as np
from absl import flags

from synapse_jax.cli.flags import choose_one
from synapse_jax.cli.progress import DOWNLOAD_BAR, say, warn
from synapse_jax.errors import InputError
from synapse_jax.evals.score import Protocol
from synapse_jax.io.model_file import ModelFile, load
from synapse_jax.io.prompts_file import read_prompts_file
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import describe_bad_bytes, drop_trailing_newline, read_bytes, strict_text
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.io.tokens_file import check_token_ids, parse_tokens, read_tokens_file
from synapse_jax.io.utf8 import text_bytes

SOURCES = ("text_file", "tokens_file", "tokens")
"""Flags of which exactly one says what is scored."""


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The input as token IDs, and how they came about."""

    ids: list[int]
    source: str
    """The flag they came from."""
    dropped_newline: bool | None = None
    """Whether a text file's last newline was dropped; None where it does not apply."""
    chat: dict[str, Any] | None = None
    """The text that the chat template made and the time that it could see; None without a template."""


def open_model(values: flags.FlagValues, *, weights: bool = True) -> ModelFile:
    """The model of `--model`; its warnings go to standard error."""
    progress = values.progress if "progress" in values else "auto"
    model = load(values.model, weights=weights, digest=True, log=say(progress), bar=DOWNLOAD_BAR[progress])
    for line in model.warnings if weights else ():
        warn(f"{shown_path(model.path)}: {line}")
    return model


def read_input(
    values: flags.FlagValues, name: str, model: ModelFile, *, drop_newline: bool = False
) -> Tokens:
    """Token IDs of the input flag called `name`.

    Raises:
        InputError: the file or the tokens cannot be used.
    """
    given: str = values[name].value  # type: ignore[assignment]
    if name in ("tokens", "tokens_file"):
        ids = parse_tokens(given, "--tokens") if name == "tokens" else read_tokens_file(given)
        source = "--tokens" if name == "tokens" else shown_path(given)
        check_token_ids(ids, model.spec.vocab_size, source)
        return Tokens(ids, name)
    text, source = read_text_input(values, name)
    dropped = None
    if drop_newline:
        text, dropped = drop_trailing_newline(text)
    return Tokens(encode(model.tokenizer, text, source), name, dropped)


def read_scored(values: flags.FlagValues, model: ModelFile) -> tuple[Tokens, Protocol, np.ndarray]:
    """The tokens that are to be scored, how, and the chunks of it.

    Raises:
        InputError: the input cannot be used, or has fewer tokens than one chunk.
    """
    source = choose_one(values, SOURCES)
    tokens = read_input(values, source, model, drop_newline=source == "text_file")
    bos_id = model.tokenizer.bos_id if model.tokenizer.add_bos else None
    protocol = Protocol(values.context, bos_id, values.chunks, values.score_last)
    return tokens, protocol, protocol.cut(tokens.ids)


def read_prompts(path: str, model: ModelFile) -> list[tuple[Tokens, str]]:
    """Token IDs of every line of a prompts file, and what to call it in messages.

    Raises:
        InputError: the file or a token cannot be used.
    """
    prompts = read_prompts_file(path)
    if any(prompt.text is not None for prompt in prompts):
        for line in model.tokenizer.warnings:
            warn(line)
    read = []
    for prompt in prompts:
        if prompt.text is not None:
            ids = _encode(model.tokenizer, text_bytes(prompt.text), prompt.source)
        else:
            ids = list(prompt.tokens)
            check_token_ids(ids, model.spec.vocab_size, prompt.source)
        read.append((Tokens(ids, "prompts_file"), prompt.source))
    return read


def define_chat(values: flags.FlagValues) -> None:
    """Flags that put a prompt into the model's chat template."""
    flags.DEFINE_bool(
        "chat",
        False,
        "The prompt is what a user says: the model's chat template is applied.",
        flag_values=values,
    )
    flags.DEFINE_string("system", None, "What the system says, before the user.", flag_values=values)
    flags.DEFINE_string(
        "messages_file",
        None,
        'A conversation: a JSON list of {"role": …, "content": …}. The chat template is applied.',
        flag_values=values,
    )
    flags.DEFINE_string(
        "chat_time",
        None,
        "The time that the chat template sees, as 2026-01-31T12:00:00; by default the real one.",
        flag_values=values,
    )


def check_chat(values: flags.FlagValues, source: str) -> None:
    """Refuses chat flags that do not go together.

    Raises:
        InputError: `--chat` with tokens, or a flag that has no effect.
    """
    if values.chat and source in ("tokens", "tokens_file", "prompts_file"):
        raise InputError(f"--chat takes a text, not --{source.replace('_', '-')}")
    if values.system is not None and not (values.chat and source != "messages_file"):
        raise InputError("--system goes with --chat and --prompt or --prompt-file")
    if values.chat_time is not None and not (values.chat or source == "messages_file"):
        raise InputError("--chat-time goes with --chat or --messages-file")


def read_chat(values: flags.FlagValues, source: str, model: ModelFile) -> Tokens:
    """Token IDs of a conversation in the model's chat template.

    Raises:
        InputError: no template, bad messages, or a template that refuses them.
    """
    from synapse_jax.io.chat import encode_chat, read_messages  # no other command needs it

    if source == "messages_file":
        messages = read_messages(values.messages_file)
    else:
        data, shown = read_text_input(values, source)
        messages = [{"role": "user", "content": strict_text(data, shown)}]
        if values.system is not None:
            system = strict_text(argument_bytes(values.system), "--system")
            messages.insert(0, {"role": "system", "content": system})
    for line in model.tokenizer.warnings:
        warn(line)
    now = None if values.chat_time is None else parse_time(values.chat_time)
    prompt = encode_chat(model.tokenizer, model.chat_template, messages, now=now)
    chat = {"text": prompt.text, "now": prompt.now.isoformat()}
    return Tokens(list(prompt.ids), source, chat=chat)


def parse_time(given: str) -> datetime.datetime:
    """The time of `--chat-time`.

    Raises:
        InputError: it is none.
    """
    try:
        return datetime.datetime.fromisoformat(given)
    except ValueError:
        raise InputError(f"--chat-time {given!r} is not a time like 2026-01-31T12:00:00") from None


def read_text_input(values: flags.FlagValues, name: str) -> tuple[bytes, str]:
    """The text of `--prompt` or of a file, as bytes, and what to call it in messages.

    Raises:
        InputError: the file cannot be read.
    """
    given: str = values[name].value  # type: ignore[assignment]
    return (argument_bytes(given), "--prompt") if name == "prompt" else (read_bytes(given), shown_path(given))


def argument_bytes(given: str) -> bytes:
    """The bytes of an argument as they were typed, whatever the locale took them for."""
    try:
        return os.fsencode(given)
    except UnicodeEncodeError:  # not from a command line: the locale cannot spell it
        return text_bytes(given)


def encode(tokenizer: Tokenizer, text: bytes, source: str, *, parse_special: bool = False) -> list[int]:
    """Token IDs with the vocabulary's BOS and EOS; warnings go to standard error.

    Args:
        tokenizer: The model's.
        text: UTF-8; where it is not, a warning names the first bad byte.
        source: The file or flag the text came from.
        parse_special: Whether control tokens in the text become their IDs.
    """
    for line in tokenizer.warnings:
        warn(line)
    return _encode(tokenizer, text, source, parse_special=parse_special)


def _encode(tokenizer: Tokenizer, text: bytes, source: str, *, parse_special: bool = False) -> list[int]:
    """As `encode`, with warnings of this text alone."""
    bad = describe_bad_bytes(text, source)
    if bad:
        warn(bad)
    lost = tokenizer.count_lost_bytes(text)
    if lost:
        warn(f"{lost} bytes of the text have no token in this vocabulary and are lost, as in llama.cpp")
    return tokenizer.encode(text, parse_special=parse_special)
