"""Text to token ids and back, for the byte-pair vocabularies that model files carry.

Words are merged by the `tokenizers` library; what surrounds it (special tokens,
BOS and EOS, decoding) is here and does what llama.cpp does, so that both
engines see the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

from synapse_jax.errors import InputError
from synapse_jax.io.byte_pieces import BYTE_OF, piece_bytes
from synapse_jax.io.pre_tokenizers import DEFAULT, PRE_TOKENIZERS, PreTokenizer
from synapse_jax.io.quoting import quote
from synapse_jax.io.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary, read_vocabulary


class Tokenizer:
    """A vocabulary with its rules. Use `build_tokenizer` to make one; it never changes."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        engine: tokenizers.Tokenizer,
        *,
        add_bos: bool,
        add_eos: bool,
        warnings: list[str],
    ):
        self._vocabulary = vocabulary
        self._engine = engine
        self.add_bos = add_bos
        """Whether `encode` puts BOS first when special tokens are asked for."""
        self.add_eos = add_eos
        """Whether `encode` puts EOS last when special tokens are asked for."""
        self.warnings = tuple(warnings)
        """What was unusual in the metadata, one line each; show them to the user."""
        self._user_defined = self._specials(USER_DEFINED)
        self._all_specials = self._specials(USER_DEFINED, CONTROL, UNKNOWN)
        self._control_texts = tuple(text for text, _ in self._specials(CONTROL, UNKNOWN))
        pieces = set(vocabulary.pieces)
        self._missing_bytes = bytes(byte for character, byte in BYTE_OF.items() if character not in pieces)

    @property
    def vocab_size(self) -> int:
        """V, number of tokens."""
        return len(self._vocabulary.pieces)

    @property
    def bos_id(self) -> int | None:
        """Id that begins a text; None where the file names none."""
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        """Id that ends a text; None where the file names none."""
        return self._vocabulary.eos_id

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids after which generation ends: llama.cpp's end-of-generation set."""
        return self._vocabulary.stop_ids

    def token_text(self, index: int) -> str:
        """The piece as the file stores it (a space is `Ġ`); invalid UTF-8 shows as `\\xNN`."""
        piece = self._piece(index)
        return piece if isinstance(piece, str) else piece.decode("utf-8", "backslashreplace")

    def count_lost_bytes(self, text: str) -> int:
        """How many bytes of a text `encode` drops, because the vocabulary has no token for them.

        llama.cpp drops them without a word (SmolLM2 has no token for U+0004 and
        a few other control characters); tell the user when this is not 0.
        """
        data = text.encode("utf-8", "surrogatepass")
        return len(data) - len(data.translate(None, self._missing_bytes))

    @property
    def control_texts(self) -> tuple[str, ...]:
        """Texts that `encode` turns into control or unknown tokens when `parse_special` is on."""
        return self._control_texts

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False, guard: str = ""
    ) -> list[int]:
        """Token ids of a text.

        Args:
          text: Any text, used as it is: no normalization, NUL and BOM included.
            See `count_lost_bytes` for the one thing that has no id.
          add_special: Add BOS and EOS where the vocabulary says so.
          parse_special: Let control tokens in the text (`<|im_start|>`) become
            their ids; otherwise only user-defined tokens match. Leave it off
            for text that someone else wrote.
          guard: A character that keeps special tokens apart: `<` guard `|im_end|>`
            is not the token, and is then encoded without the guard. "" is none.

        Returns:
          Ids, each in [0, V).

        Raises:
          InputError: the text has a lone surrogate, which no byte sequence encodes.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            code = f"U+{ord(text[error.start]):04X}"
            raise InputError(f"text: character {error.start} is a lone surrogate {code}") from None
        ids: list[int] = []
        if add_special and self.add_bos and self.bos_id is not None:
            ids.append(self.bos_id)
        for part in _partition(text, self._all_specials if parse_special else self._user_defined):
            if isinstance(part, int):
                ids.append(part)
                continue
            if guard:
                part = part.replace(guard, "")
            if part:
                ids.extend(self._engine.encode(part, add_special_tokens=False).ids)
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def decode_bytes(self, ids: Iterable[int], *, special: bool = True) -> bytes:
        """The bytes that ids stand for, one token after the other; nothing is cleaned up or dropped.

        Args:
          ids: Token ids.
          special: Whether control and unknown tokens show as their text
            (`<|im_end|>`). Without it they are left out, as llama.cpp does in chat.

        Raises:
          InputError: an id outside [0, V).
        """
        types = self._vocabulary.types
        parts = []
        for index in ids:
            piece = self._piece(index)
            if special or types[index] not in (CONTROL, UNKNOWN):
                parts.append(piece_bytes(piece, types[index]))
        return b"".join(parts)

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """`decode_bytes` as text; what is not UTF-8 (a character cut in half) shows as U+FFFD."""
        return self.decode_bytes(ids, special=special).decode("utf-8", "replace")

    def _piece(self, index: int) -> str | bytes:
        if not 0 <= index < self.vocab_size:
            raise InputError(f"token id {index} is outside the vocabulary of {self.vocab_size} tokens")
        return self._vocabulary.pieces[index]

    def _specials(self, *types: int) -> list[tuple[str, int]]:
        pieces = self._vocabulary.pieces
        found = [index for index, kind in enumerate(self._vocabulary.types) if kind in types]
        # Bytes that are not UTF-8 cannot occur in a text, so such a token never matches.
        specials = [(piece, index) for index in found if isinstance(piece := pieces[index], str)]
        return sorted(specials, key=lambda special: -len(special[0].encode()))


def build_tokenizer(metadata: Mapping[str, Any], *, source: str) -> Tokenizer:
    """A tokenizer from a model file's metadata.

    Args:
      metadata: GGUF keys to values. `tokenizer.ggml.model` must be `gpt2`,
        `tokenizer.ggml.pre` a key of PRE_TOKENIZERS. Without the latter, or with
        `default`, llama.cpp's default is used and a warning says so.
      source: Name of the file, for messages.

    Raises:
      InputError: an unsupported tokenizer, or lists and ids that do not fit together.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model is None:
        raise InputError(f"{source}: no tokenizer.ggml.model: the file carries no tokenizer")
    if not isinstance(model, str) or model != "gpt2":
        raise InputError(f"{source}: tokenizer.ggml.model is {quote(model)}; supported: 'gpt2'")
    warnings: list[str] = []
    pre_tokenizer = _pre_tokenizer(metadata, source, warnings)
    vocabulary = read_vocabulary(metadata, source)
    add_bos = _flag(metadata, "add_bos_token", pre_tokenizer.add_bos, source)
    add_eos = _flag(metadata, "add_eos_token", False, source)
    for flag, key, index in ((add_bos, "bos", vocabulary.bos_id), (add_eos, "eos", vocabulary.eos_id)):
        if flag and index is None:
            raise InputError(f"{source}: add_{key}_token is on but tokenizer.ggml.{key}_token_id is missing")
    # Pieces that are not text are left out: byte-level words cannot reach them.
    ids = {piece: index for index, piece in enumerate(vocabulary.pieces) if isinstance(piece, str)}
    merges = _merges(metadata, ids, source, warnings)
    engine = tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=merges, ignore_merges=pre_tokenizer.ignore_merges)
    )
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [  # type: ignore[assignment]
            *(
                pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
                for pattern in pre_tokenizer.patterns
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    warnings.extend(vocabulary.warnings)
    return Tokenizer(vocabulary, engine, add_bos=add_bos, add_eos=add_eos, warnings=warnings)


def _pre_tokenizer(metadata: Mapping[str, Any], source: str, warnings: list[str]) -> PreTokenizer:
    name = metadata.get("tokenizer.ggml.pre")
    if name is not None and not isinstance(name, str):
        raise InputError(f"{source}: tokenizer.ggml.pre is {quote(name)}, not a name")
    if name is None or name in ("", "default"):
        state = "is 'default'" if name == "default" else "is missing"
        warnings.append(
            f"{source}: tokenizer.ggml.pre {state}: llama.cpp's default split is used, ids may be wrong"
        )
        return DEFAULT
    if name not in PRE_TOKENIZERS:
        raise InputError(
            f"{source}: tokenizer.ggml.pre is {quote(name)}, which is not supported; "
            f"supported: {', '.join(PRE_TOKENIZERS)}"
        )
    return PRE_TOKENIZERS[name]


def _flag(metadata: Mapping[str, Any], key: str, default: bool, source: str) -> bool:
    value = metadata.get(f"tokenizer.ggml.{key}", default)
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{source}: tokenizer.ggml.{key} is {quote(value)}, not true or false")
    return bool(value)


def _merges(
    metadata: Mapping[str, Any], ids: dict[str, int], source: str, warnings: list[str]
) -> list[tuple[str, str]]:
    key = "tokenizer.ggml.merges"
    stored = metadata.get(key)
    if stored is None:
        raise InputError(f"{source}: {key} is missing")
    if not isinstance(stored, list):
        raise InputError(f"{source}: {key} is {quote(stored)}, not a list of pairs")
    merges: dict[tuple[str, str], None] = {}
    for index, line in enumerate(stored):
        # The first space after the first character: a piece may itself begin with a space.
        cut = line.find(" ", 1) if isinstance(line, str) else -1
        left, right = line[:cut], line[cut + 1 :]
        if cut < 1 or not right:
            raise InputError(f"{source}: {key}[{index}] {quote(line)} is not two pieces")
        for piece in (left, right, left + right):
            if piece not in ids:
                raise InputError(
                    f"{source}: {key}[{index}] {quote(line)} needs {quote(piece)}, not in the vocabulary"
                )
        merges.setdefault((left, right))
    if len(merges) != len(stored):
        warnings.append(
            f"{source}: {key} repeats {len(stored) - len(merges)} of its pairs; the first one counts"
        )
    return list(merges)


def _partition(text: str, specials: list[tuple[str, int]]) -> list[str | int]:
    """Cuts special tokens out of a text: the longest token first, everywhere, then the next one."""
    parts: list[str | int] = [text] if text else []
    for piece, index in specials:
        if piece not in text:
            continue
        cut: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                cut.append(part)
                continue
            for position, between in enumerate(part.split(piece)):
                if position:
                    cut.append(index)
                if between:
                    cut.append(between)
        parts = cut
    return parts
