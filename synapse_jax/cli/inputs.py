"""What a user gives a command to work on: a model, and a text or tokens."""

from __future__ import annotations

import dataclasses
import os

from absl import flags

from synapse_jax.cli.progress import DOWNLOAD_BAR, say, warn
from synapse_jax.io.model_file import ModelFile, load
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import describe_bad_bytes, drop_trailing_newline, read_bytes
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.io.tokens_file import check_token_ids, parse_tokens, read_tokens_file
from synapse_jax.io.utf8 import text_bytes


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The input as token IDs, and how they came about."""

    ids: list[int]
    source: str
    """The flag they came from."""
    dropped_newline: bool | None = None
    """Whether a text file's last newline was dropped; None where it does not apply."""


def open_model(values: flags.FlagValues, *, weights: bool = True) -> ModelFile:
    """The model of `--model`; its warnings go to standard error."""
    progress = values.progress if "progress" in values else "auto"
    model = load(values.model, weights=weights, log=say(progress), bar=DOWNLOAD_BAR[progress])
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
    bad = describe_bad_bytes(text, source)
    if bad:
        warn(bad)
    lost = tokenizer.count_lost_bytes(text)
    if lost:
        warn(f"{lost} bytes of the text have no token in this vocabulary and are lost, as in llama.cpp")
    return tokenizer.encode(text, parse_special=parse_special)
