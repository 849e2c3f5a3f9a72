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
STOP_TEXTS = frozenset((
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
))  # fmt: skip
"""Texts of tokens that end generation wherever they are in a vocabulary."""

# Parts of fill-in-the-middle prompts: the first three end nothing, after the others comes another file.
_FILL_TEXTS = {
    "fim_pre_token_id": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf_token_id": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid_token_id": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad_token_id": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep_token_id": ("<|file_sep|>",),
}  # fmt: skip
_FILL_STOPS = ("fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id")
# Older names of the first three.
_FILL_ALIASES = {
    "fim_pre_token_id": "prefix_token_id",
    "fim_suf_token_id": "suffix_token_id",
    "fim_mid_token_id": "middle_token_id",
}
# llama.cpp's ids for a SentencePiece vocabulary that names none. (For byte-pair ones it takes 11.)
_LLAMA_IDS = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """V pieces and what the file and llama.cpp's rules say about them."""

    pieces: Sequence[str | bytes]
    """Piece of each id as stored; bytes where the file's entry is not valid UTF-8."""
    ids: Mapping[str | bytes, int]
    """Id of each piece."""
    types: np.ndarray
    """int32 [V]: kind of each id, after llama.cpp's corrections."""
    bos_id: int | None
    """Token that begins a text, None where the file names none."""
    eos_id: int | None
    """Token that ends a text, None where the file names none."""
    stop_ids: frozenset[int]
    """Tokens after which generation ends."""
    byte_level: bool
    """Whether the characters of a piece stand for bytes (GPT-2's alphabet); else they are text."""
    unknown_id: int | None = None
    """Token for what has no other, None where there is none."""
    warnings: tuple[str, ...] = ()
    """What was unusual in the file and how it was read."""

    def of_type(self, *types: int) -> list[int]:
        """Ids of some kinds, in order."""
        return np.flatnonzero(np.isin(self.types, types)).tolist()


def read_vocabulary(metadata: Mapping[str, Any], source: str, *, byte_level: bool) -> Vocabulary:
    """Checks the token list and resolves the special tokens.

    Args:
      metadata: GGUF keys to values; `tokenizer.ggml.tokens` is required.
      source: Name of the file, for messages.
      byte_level: What pieces are made of, see `Vocabulary`.

    Raises:
      InputError: lists of different lengths, a piece that occurs twice, a
        special id outside the vocabulary.
    """
    warnings: list[str] = []
    pieces = _pieces(metadata, source, warnings)
    by_piece = dict(zip(pieces, range(len(pieces)), strict=True))
    if len(by_piece) != len(pieces):
        first: dict[str | bytes, int] = {}
        for index, piece in enumerate(pieces):
            if piece in first:
                at = f"{source}: {_PREFIX}tokens[{index}] {quote(piece)}"
                raise InputError(f"{at} repeats {_PREFIX}tokens[{first[piece]}]")
            first[piece] = index
    types = _types(metadata, len(pieces), source, warnings)
    ids = {key: _special_id(metadata, key, len(pieces), source) for key in _ID_KEYS}
    if metadata.get(_PREFIX + "model") == "llama":
        for key, default in _LLAMA_IDS.items():
            if ids[key] is None and default < len(pieces):
                ids[key] = default
                warnings.append(f"{source}: no {_PREFIX}{key}, {default} is used as in llama.cpp")
    if ids["eos_token_id"] is None:
        warnings.append(
            f"{source}: no {_PREFIX}eos_token_id: generation stops on known end-of-text pieces only"
        )
    stop_ids = _stop_ids(by_piece, types, ids, source, warnings)
    types.flags.writeable = False
    return Vocabulary(
        pieces,
        by_piece,
        types,
        ids["bos_token_id"],
        ids["eos_token_id"],
        stop_ids,
        byte_level,
        ids["unknown_token_id"],
        tuple(warnings),
    )


def read_scores(metadata: Mapping[str, Any], count: int, source: str) -> np.ndarray | None:
    """float32 [V], or None where the file has no scores; InputError if they do not fit the tokens."""
    key = _PREFIX + "scores"
    stored = metadata.get(key)
    if stored is None:
        return None
    if not _is_list(stored):
        raise InputError(f"{source}: {key} is {quote(stored)}, not a list")
    if len(stored) != count:
        raise InputError(f"{source}: {key} has {len(stored)} entries for {count} tokens")
    numbers = isinstance(stored, np.ndarray) or all(type(score) in (int, float) for score in stored)
    scores = np.asarray(stored if numbers else [])
    if not numbers or scores.dtype.kind not in "fiu":
        raise InputError(f"{source}: {key} holds something other than numbers")
    with np.errstate(over="ignore"):
        scores = scores.astype(np.float32)
    if not np.isfinite(scores).all():
        index = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise InputError(f"{source}: {key}[{index}] is {quote(stored[index])}, not a float32 number")
    return scores


def _pieces(metadata: Mapping[str, Any], source: str, warnings: list[str]) -> Sequence[str | bytes]:
    key = _PREFIX + "tokens"
    stored = metadata.get(key)
    if not isinstance(stored, Sequence) or isinstance(stored, str | bytes) or not stored:
        raise InputError(f"{source}: {key} is missing or is not a list of tokens")
    kinds = set(map(type, stored))
    if kinds == {str} and "" not in stored:
        return stored
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
    return pieces


def _types(metadata: Mapping[str, Any], count: int, source: str, warnings: list[str]) -> np.ndarray:
    key = _PREFIX + "token_type"
    stored = metadata.get(key)
    if stored is None:
        warnings.append(f"{source}: no {key}; every token is read as a normal one")
        return np.full(count, NORMAL, np.int32)
    if not _is_list(stored):
        raise InputError(f"{source}: {key} is {quote(stored)}, not a list")
    if len(stored) != count:
        raise InputError(f"{source}: {key} has {len(stored)} entries for {count} tokens")
    if isinstance(stored, np.ndarray):
        if stored.dtype.kind not in "iu":
            raise InputError(f"{source}: {key} holds {stored.dtype} values, not integers")
    else:
        for index, kind in enumerate(stored):
            if not _is_integer(kind):
                raise InputError(f"{source}: {key}[{index}] is {quote(kind)}, not an integer")
    # Numbers that no kind has, however large, are one kind here: none.
    kinds = np.asarray(stored)
    return np.where((kinds >= 0) & (kinds <= BYTE), kinds, 0).astype(np.int32)


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
    by_text: Mapping[str | bytes, int],
    types: np.ndarray,
    ids: dict[str, int | None],
    source: str,
    warnings: list[str],
) -> frozenset[int]:
    def mark_control(text: str) -> int:
        index = by_text[text]
        if types[index] != CONTROL:
            warnings.append(f"{source}: token {index} {quote(text)} looks like a control token, read as one")
            types[index] = CONTROL
        return index

    stops = {ids[key] for key in ("eos_token_id", "eot_token_id", "eom_token_id")}
    for key, texts in _FILL_TEXTS.items():
        known = ids[key] if ids[key] is not None else ids.get(_FILL_ALIASES.get(key, ""))
        if known is None and (found := [text for text in texts if text in by_text]):
            # llama.cpp takes whichever its hash table meets first; a list's order is always the same.
            known = mark_control(found[0])
        if key in _FILL_STOPS:
            stops.add(known)
    named = [text for text in sorted(STOP_TEXTS) if text in by_text]
    # Vocabularies in which one of these texts means something else.
    if "</s>" in named and ("<|tool_response>" in named or by_text.get("<|plamo:eos|>", -1) in stops):
        named.remove("</s>")
        stops.discard(by_text["</s>"])
        types[by_text["</s>"]] = NORMAL
    stops.update([mark_control(text) for text in named])
    calls = "<|call|>" in named or "<|calls|>" in named
    if "<|end|>" in named and calls and ("<|return|>" in named or "<|flush|>" in named):
        # It ends a message, not the answer. llama.cpp also lets it match in any text; not here.
        stops.discard(by_text["<|end|>"])
    return frozenset(index for index in stops if index is not None)
