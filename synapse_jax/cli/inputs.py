"""What a user gives a command to work on: a model, and a text or tokens."""

from __future__ import annotations

import dataclasses
import os

from absl import flags

from synapse_jax.cli.progress import DOWNLOAD_BAR, say, warn
from synapse_jax.errors import InputError
from synapse_jax.io.model_file import ModelFile, load
from synapse_jax.io.quoting import shown_path
from synapse_jax.io.text_file import drop_trailing_newline, read_text
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.io.tokens_file import check_token_ids, parse_tokens, read_tokens_file


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
    text, dropped = argument_text(given, "--prompt") if name == "prompt" else read_text(given), None
    if drop_newline:
        text, dropped = drop_trailing_newline(text)
    return Tokens(encode(model.tokenizer, text), name, dropped)


def argument_text(given: str, flag: str) -> str:
    """The text of an argument: its bytes are UTF-8, whatever the locale took them for.

    Raises:
        InputError: they are not.
    """
    try:
        return os.fsencode(given).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{flag}: not valid UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError as error:
        raise InputError(f"{flag}: not valid Unicode at character {error.start}") from None


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token IDs with the vocabulary's special tokens, special parsing off; warnings go to standard error."""
    for line in tokenizer.warnings:
        warn(line)
    lost = tokenizer.count_lost_bytes(text)
    if lost:
        warn(f"{lost} bytes of the text have no token in this vocabulary and are lost, as in llama.cpp")
    return tokenizer.encode(text)
