"""Text to token ids and back, for the vocabularies that model files carry.

Words are merged by the `tokenizers` and `sentencepiece` libraries; what
surrounds that (special tokens, BOS and EOS, broken UTF-8, decoding) is here and
does what llama.cpp does, so that both engines see the same ids. On purpose it differs in this:

- Without `parse_special` no text becomes a control token. llama.cpp lets merges lead to
  one, and lets `<|channel|>`, `<|message|>`, `<|start|>`, `<|constrain|>` and sometimes
  `<|end|>` match in any text, whatever their type.
- A special id outside the vocabulary, a piece that comes twice or a merge of unknown pieces
  is refused; llama.cpp warns, aborts or reads on.
- Unused tokens decode to their piece, not to nothing.
- Code points above U+10FFFF are U+FFFD, and bytes for which a SentencePiece vocabulary has
  no token are its unknown token; llama.cpp fails.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.byte_pieces import piece_bytes
from synapse_jax.io.decoder import Decoder
from synapse_jax.io.pre_tokenizers import DEFAULT, GEMMA4, PRE_TOKENIZERS, PreTokenizer
from synapse_jax.io.quoting import quote
from synapse_jax.io.special_tokens import SpecialTokens, read_specials
from synapse_jax.io.utf8 import text_bytes
from synapse_jax.io.vocabulary import CONTROL, UNKNOWN, Vocabulary, read_scores, read_vocabulary


class TextEncoder(Protocol):
    """Text to ids, without BOS and EOS."""

    def encode(self, data: bytes, *, control: bool, guard: str | None) -> list[int]:
        """Ids of UTF-8; `control` and `guard` as in `Tokenizer.encode`."""
        ...

    def count_lost_bytes(self, data: bytes) -> int:
        """How many bytes get no token."""
        ...


class Tokenizer:
    """A vocabulary with its rules; it never changes.

    Made by `build_tokenizer` or `tokenizer_json.read_tokenizer_json`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: TextEncoder,
        *,
        add_bos: bool,
        add_eos: bool,
        warnings: Sequence[str],
    ):
        self._vocabulary = vocabulary
        self._encoder = encoder
        self.add_bos = add_bos
        """Whether `encode` puts BOS first when special tokens are asked for."""
        self.add_eos = add_eos
        """Whether `encode` puts EOS last when special tokens are asked for."""
        self.warnings = tuple(warnings)
        """What was unusual in the metadata, one line each; show them to the user."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens themselves."""
        return self._vocabulary

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

    @functools.cached_property
    def control_texts(self) -> tuple[str, ...]:
        """Texts that become control tokens where they are parsed, in the order of their ids."""
        pieces = self._vocabulary.pieces
        found = (pieces[index] for index in self._vocabulary.of_type(CONTROL, UNKNOWN))
        return tuple(piece for piece in found if isinstance(piece, str))

    def token_text(self, index: int) -> str:
        """The piece as the file stores it (a space is `Ġ` or `▁`); invalid UTF-8 shows as `\\xNN`."""
        piece = self._piece(index)
        return piece if isinstance(piece, str) else piece.decode("utf-8", "backslashreplace")

    def count_lost_bytes(self, text: str | bytes) -> int:
        """How many bytes of a text `encode` drops, because the vocabulary has no token for them.

        llama.cpp drops them without a word (SmolLM2 has no token for U+0004 and
        a few other control characters); tell the user when this is not 0.
        """
        return self._encoder.count_lost_bytes(text_bytes(text))

    def encode(
        self,
        text: str | bytes,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        guard: str | None = None,
    ) -> list[int]:
        """Token ids of a text.

        Without `parse_special` no text becomes a control token, not even where the
        vocabulary's merges lead to one (llama.cpp follows them).

        Args:
          text: Any text, used as it is: no normalization, NUL and BOM included.
            Bytes are UTF-8; what is not valid is read as llama.cpp reads it: U+FFFD
            in byte-pair vocabularies, byte tokens in SentencePiece ones. See
            `count_lost_bytes` for the one thing that has no id.
          add_special: Add BOS and EOS where the vocabulary says so.
          parse_special: Let control tokens in the text (`<|im_start|>`) become
            their ids; otherwise only user-defined tokens match. Leave it off
            for text that someone else wrote.
          guard: A character that is removed from the text once special tokens are
            cut out, before merging. Put it inside the name of a control token that
            must stay text although `parse_special` is on.

        Returns:
          Ids, each in [0, V).
        """
        if guard == "":
            raise ValueError("guard is empty, it must be a character")
        ids = self._encoder.encode(text_bytes(text), control=parse_special, guard=guard)
        if add_special and self.add_bos and self.bos_id is not None:
            ids.insert(0, self.bos_id)
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def decode_bytes(self, ids: Iterable[int], *, special: bool = True) -> bytes:
        """The bytes that ids stand for, one token after the other; nothing is cleaned up or dropped.

        So the space that a SentencePiece vocabulary puts before a text is there too.

        Args:
          ids: Token ids.
          special: Whether control and unknown tokens show as their text
            (`<|im_end|>`). Without it they are left out, as llama.cpp does in chat.

        Raises:
          InputError: an id outside [0, V).
        """
        known: dict[int, bytes] = {}
        parts = []
        for index in ids:
            if index not in known:
                piece, kind = self._piece(index), self._vocabulary.types[index]
                hidden = not special and kind in (CONTROL, UNKNOWN)
                known[index] = (
                    b"" if hidden else piece_bytes(piece, kind, byte_level=self._vocabulary.byte_level)
                )
            parts.append(known[index])
        return b"".join(parts)

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """`decode_bytes` as text; what is not UTF-8 (a character cut in half) shows as U+FFFD."""
        return self.decode_bytes(ids, special=special).decode("utf-8", "replace")

    def decoder(self, *, special: bool = True) -> Decoder:
        """A decoder for tokens that come one after the other; `special` as in `decode_bytes`."""
        return Decoder(functools.partial(self.decode_bytes, special=special))

    def _piece(self, index: int) -> str | bytes:
        if not 0 <= index < self.vocab_size:
            raise InputError(f"token id {index} is outside the vocabulary of {self.vocab_size} tokens")
        return self._vocabulary.pieces[index]


class Merger(Protocol):
    """Merges what is left between special tokens."""

    def encode_parts(self, parts: Sequence[bytes | int]) -> list[int]:
        """Ids of plain stretches, and of tokens that are already known, in order."""
        ...

    def count_lost_bytes(self, data: bytes) -> int:
        """How many bytes get no token."""
        ...


class GgufEncoder:
    """Special tokens are cut out of a text, the rest is merged."""

    def __init__(self, specials: SpecialTokens, merger: Merger):
        self._specials = specials
        self._merger = merger
        self.count_lost_bytes = merger.count_lost_bytes

    def encode(self, data: bytes, *, control: bool, guard: str | None) -> list[int]:
        """See `TextEncoder`."""
        return self._merger.encode_parts(self._specials.cut(data, control=control, guard=guard))


def build_tokenizer(metadata: Mapping[str, Any], *, source: str) -> Tokenizer:
    """A tokenizer from a model file's metadata.

    Args:
      metadata: GGUF keys to values. `tokenizer.ggml.model` is `gpt2`, `gemma4` or
        `llama`. With gpt2, `tokenizer.ggml.pre` is a key of PRE_TOKENIZERS; without
        it, or with `default`, llama.cpp's default is used and a warning says so.
      source: Name of the file, for messages.

    Raises:
      InputError: an unsupported tokenizer, or lists and ids that do not fit together.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model is None:
        raise InputError(f"{source}: no tokenizer.ggml.model: the file carries no tokenizer")
    if not isinstance(model, str) or model not in ("gpt2", "gemma4", "llama"):
        raise InputError(
            f"{source}: tokenizer.ggml.model is {quote(model)}; supported: 'gpt2', 'gemma4', 'llama'"
        )
    warnings: list[str] = []
    rule = GEMMA4 if model == "gemma4" else _pre_tokenizer(metadata, source, warnings)
    sentence_pieces = model == "llama"
    vocabulary = read_vocabulary(metadata, source, byte_level=not (sentence_pieces or rule.raw))
    add_bos = _flag(metadata, "add_bos_token", sentence_pieces or rule.add_bos, source)
    if rule is GEMMA4 and not add_bos:
        add_bos = True
        warnings.append(f"{source}: tokenizer.ggml.add_bos_token is off; gemma4 has it on, as in llama.cpp")
    add_eos = _flag(metadata, "add_eos_token", False, source)
    for flag, key, index in ((add_bos, "bos", vocabulary.bos_id), (add_eos, "eos", vocabulary.eos_id)):
        if flag and index is None:
            raise InputError(f"{source}: add_{key}_token is on but tokenizer.ggml.{key}_token_id is missing")
    # Imported when needed: each brings a library of its own.
    if sentence_pieces:
        from synapse_jax.io.spm import ScoreMerger

        scores = read_scores(metadata, len(vocabulary.pieces), source)
        if scores is None:
            warnings.append(f"{source}: no tokenizer.ggml.scores: pieces are merged from left to right")
            scores = np.zeros(len(vocabulary.pieces), np.float32)
        prefix = _flag(metadata, "add_space_prefix", True, source)
        merger = ScoreMerger(vocabulary, scores, add_space_prefix=prefix, source=source)
    else:
        from synapse_jax.io.bpe import build_merger

        read_scores(metadata, len(vocabulary.pieces), source)
        merger = build_merger(metadata, vocabulary, rule, source, warnings)
    warnings.extend(vocabulary.warnings)
    encoder = GgufEncoder(SpecialTokens(read_specials(metadata, vocabulary)), merger)
    return Tokenizer(vocabulary, encoder, add_bos=add_bos, add_eos=add_eos, warnings=warnings)


def _pre_tokenizer(metadata: Mapping[str, Any], source: str, warnings: list[str]) -> PreTokenizer:
    if metadata.get("tokenizer.ggml.model") == "llama":
        return DEFAULT  # not used: these vocabularies do not cut words
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
