"""The vocabulary that a model file carries: pieces, kinds of token, special ids, all checked.

Keys are those of the GGUF specification (`tokenizer.ggml.*`); how special
tokens are found where the file does not name them follows llama.cpp
(src/llama-vocab.cpp, `llama_vocab::impl::load`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import quote

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Values of `tokenizer.ggml.token_type`; anything else is treated as llama.cpp's `undefined`."""

_PREFIX = "tokenizer.ggml."
_ID_KEYS = (
    "bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id", "seperator_token_id",
    "padding_token_id", "mask_token_id", "fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id",
    "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id", "prefix_token_id", "suffix_token_id",
    "middle_token_id",
)  # fmt: skip
# Texts that end generation wherever they are in the vocabulary.
_STOP_TEXTS = frozenset((
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
))  # fmt: skip
# Parts of fill-in-the-middle prompts that also end generation: what follows is another file.
_FILL_TEXTS = {
    "fim_pad_token_id": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep_token_id": ("<|file_sep|>",),
}


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """V pieces and what the file and llama.cpp's rules say about them."""

    pieces: tuple[str | bytes, ...]
    """Piece of each id as stored; bytes where the file's entry is not valid UTF-8."""
    types: tuple[int, ...]
    """Kind of each id, after llama.cpp's corrections."""
    bos_id: int | None
    """Token that begins a text, None where the file names none."""
    eos_id: int | None
    """Token that ends a text, None where the file names none."""
    stop_ids: frozenset[int]
    """Tokens after which generation ends."""
    warnings: tuple[str, ...]
    """What was unusual in the file and how it was read."""


def read_vocabulary(metadata: Mapping[str, Any], source: str) -> Vocabulary:
    """Checks the token list and resolves the special tokens.

    Args:
      metadata: GGUF keys to values; `tokenizer.ggml.tokens` is required.
      source: Name of the file, for messages.

    Raises:
      InputError: lists of different lengths, a piece that occurs twice, a
        special id outside the vocabulary.
    """
    warnings: list[str] = []
    pieces = _pieces(metadata, source, warnings)
    types = _types(metadata, len(pieces), source, warnings)
    scores = metadata.get(_PREFIX + "scores")
    if scores is not None and not _is_list(scores):
        raise InputError(f"{source}: {_PREFIX}scores is {quote(scores)}, not a list")
    if scores is not None and len(scores) != len(pieces):
        raise InputError(f"{source}: {_PREFIX}scores has {len(scores)} entries for {len(pieces)} tokens")
    ids = {key: _special_id(metadata, key, len(pieces), source) for key in _ID_KEYS}
    if ids["eos_token_id"] is None:
        warnings.append(
            f"{source}: no {_PREFIX}eos_token_id: generation stops on known end-of-text pieces only"
        )
    stop_ids = _stop_ids(pieces, types, ids, source, warnings)
    return Vocabulary(
        tuple(pieces), tuple(types), ids["bos_token_id"], ids["eos_token_id"], stop_ids, tuple(warnings)
    )


def _pieces(metadata: Mapping[str, Any], source: str, warnings: list[str]) -> list[str | bytes]:
    key = _PREFIX + "tokens"
    stored = metadata.get(key)
    if not isinstance(stored, Sequence) or isinstance(stored, str | bytes) or not stored:
        raise InputError(f"{source}: {key} is missing or is not a list of tokens")
    pieces: list[str | bytes] = list(stored)
    for index, piece in enumerate(pieces):
        if not isinstance(piece, str | bytes):
            raise InputError(f"{source}: {key}[{index}] is {type(piece).__name__}, not a string")
        if not piece:
            pieces[index] = f"[EMPTY_{index}]"  # llama.cpp's name for it
            warnings.append(f"{source}: {key}[{index}] is empty, read as [EMPTY_{index}]")
        elif isinstance(piece, bytes):
            warnings.append(
                f"{source}: {key}[{index}] is not valid UTF-8: it decodes to its bytes, no text makes it"
            )
    if len(set(pieces)) != len(pieces):
        first: dict[str | bytes, int] = {}
        for index, piece in enumerate(pieces):
            if piece in first:
                raise InputError(f"{source}: {key}[{index}] {quote(piece)} repeats {key}[{first[piece]}]")
            first[piece] = index
    return pieces


def _types(metadata: Mapping[str, Any], count: int, source: str, warnings: list[str]) -> list[int]:
    key = _PREFIX + "token_type"
    stored = metadata.get(key)
    if stored is None:
        warnings.append(f"{source}: no {key}; every token is read as a normal one")
        return [NORMAL] * count
    if not _is_list(stored):
        raise InputError(f"{source}: {key} is {quote(stored)}, not a list")
    if len(stored) != count:
        raise InputError(f"{source}: {key} has {len(stored)} entries for {count} tokens")
    kinds = stored.tolist() if isinstance(stored, np.ndarray) else list(stored)
    for index, kind in enumerate(kinds):
        if not _is_integer(kind):
            raise InputError(f"{source}: {key}[{index}] is {quote(kind)}, not an integer")
    return kinds


def _special_id(metadata: Mapping[str, Any], key: str, count: int, source: str) -> int | None:
    value = metadata.get(_PREFIX + key)
    if value is None:
        return None
    if not _is_integer(value):
        raise InputError(f"{source}: {_PREFIX}{key} is {quote(value)}, not a token id")
    if not 0 <= value < count:
        raise InputError(f"{source}: {_PREFIX}{key} is {value}, outside the vocabulary of {count} tokens")
    return int(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _stop_ids(
    pieces: list[str | bytes], types: list[int], ids: dict[str, int | None], source: str, warnings: list[str]
) -> frozenset[int]:
    by_text = {piece: index for index, piece in enumerate(pieces)}

    def mark_control(index: int) -> None:
        if types[index] != CONTROL:
            warnings.append(
                f"{source}: token {index} {quote(pieces[index])} looks like a control token, read as one"
            )
            types[index] = CONTROL

    stops = {ids[key] for key in ("eos_token_id", "eot_token_id", "eom_token_id")}
    for key, texts in _FILL_TEXTS.items():
        found = [by_text[text] for text in texts if text in by_text]
        if ids[key] is None and found:
            # llama.cpp takes whichever its hash table meets first; a list's order is always the same.
            mark_control(found[0])
            stops.add(found[0])
        stops.add(ids[key])
    for text in sorted(_STOP_TEXTS & by_text.keys()):
        mark_control(by_text[text])
        stops.add(by_text[text])
    # Vocabularies in which one of these texts means something else.
    texts = {pieces[index] for index in stops if index is not None}
    calls, end = bool(texts & {"<|call|>", "<|calls|>"}), by_text.get("<|end|>")
    if end in stops and calls and (("<|return|>" in texts and "<|call|>" in texts) or "<|flush|>" in texts):
        stops.discard(end)
        types[by_text["<|end|>"]] = USER_DEFINED
    close = by_text.get("</s>")
    if close in stops and texts & {"<|tool_response>", "<|plamo:eos|>"}:
        stops.discard(close)
        types[by_text["</s>"]] = NORMAL
    return frozenset(index for index in stops if index is not None)
