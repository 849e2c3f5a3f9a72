"""The tokenizer of a Hugging Face folder: `tokenizer.json` and the small files beside it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from synapse_jax.errors import InputError
from synapse_jax.io.byte_pieces import BYTE_OF, byte_value
from synapse_jax.io.folder_files import read_object
from synapse_jax.io.quoting import quote, shown_path
from synapse_jax.io.text_file import read_bytes
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.io.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    STOP_TEXTS,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
)

_MAX_IDS = 1 << 21


def read_tokenizer_json(folder: str | os.PathLike[str]) -> Tokenizer:
    """A tokenizer that gives the ids that the `tokenizers` library gives.

    BOS, EOS and the tokens that end generation come from tokenizer_config.json,
    special_tokens_map.json, generation_config.json and config.json, in this order,
    as far as they are there; `add_bos_token` and `add_eos_token` count before what the
    post-processor does. Known end-of-text pieces end generation too. Where config.json
    has a larger vocabulary, the ids above decode to a placeholder.

    Bytes that are not UTF-8 become U+FFFD, as in Python. Merges that make a special
    token are left out: text must not become one.

    Args:
      folder: Holds tokenizer.json.

    Raises:
      InputError: a file cannot be read or used; the message names it and the field.
    """
    path = Path(folder) / "tokenizer.json"
    data = read_bytes(path)
    shown = shown_path(path)
    stored = _parse(data, shown)
    warnings: list[str] = []
    if _drop_special_merges(stored, shown, warnings):
        data = json.dumps(stored).encode()
    encoder = _JsonEncoder(data, stored, shown)
    settings = _Settings(Path(folder))
    pieces, types, byte_level = _pieces(stored, encoder.engine, settings, shown)
    ids = {piece: index for index, piece in enumerate(pieces)}
    bos, eos = settings.token("bos", ids), settings.token("eos", ids)
    added = encoder.engine.encode("").ids
    begins, ends = _post_processor(added, bos, eos, shown)
    if begins and bos is None:
        bos = added[0]
    add_bos, add_eos = settings.flag("add_bos_token", begins), settings.flag("add_eos_token", ends)
    for flag, key, index in ((add_bos, "bos", bos), (add_eos, "eos", eos)):
        if flag and index is None:
            raise InputError(f"{shown}: add_{key}_token is on, but no file names {key}_token")
    stops = settings.stop_ids(len(pieces)) | {eos}
    stops |= {ids[text] for text in STOP_TEXTS if text in ids and types[ids[text]] == CONTROL}
    if stops == {None}:
        warnings.append(f"{shown_path(folder)}: no file names eos_token: generation ends at the length only")
    vocabulary = Vocabulary(
        pieces, ids, types, bos, eos, frozenset(index for index in stops if index is not None), byte_level
    )
    return Tokenizer(vocabulary, encoder, add_bos=add_bos, add_eos=add_eos, warnings=warnings)


class _JsonEncoder:
    """Text to ids with the `tokenizers` library."""

    def __init__(self, data: bytes, stored: dict[str, Any], shown: str):
        self._stored = stored
        self._shown = shown
        self._guarded: dict[str, tokenizers.Tokenizer] = {}
        # Whether special tokens match is a setting of the engine, not an argument.
        self._lock = threading.Lock()
        self.engine = _engine(data, shown)
        vocabulary = self.engine.get_vocab(with_added_tokens=False)
        absent = bytes(byte for character, byte in BYTE_OF.items() if character not in vocabulary)
        silent = stored["model"].get("unk_token") is None and not stored["model"].get("byte_fallback")
        self._lost = absent if silent and _mentions(stored.get("pre_tokenizer"), "ByteLevel") else b""

    def encode(self, data: bytes, *, control: bool, guard: str | None) -> list[int]:
        """See `tokenizer.TextEncoder`."""
        text = data.decode("utf-8", "replace")
        with self._lock:
            engine = self.engine if guard is None else self._with_guard(guard)
            engine.encode_special_tokens = not control
            return engine.encode(text, add_special_tokens=False).ids

    def count_lost_bytes(self, data: bytes) -> int:
        """See `tokenizer.TextEncoder`."""
        return len(data) - len(data.translate(None, self._lost))

    def _with_guard(self, guard: str) -> tokenizers.Tokenizer:
        """The engine with the guard removed once special tokens are cut out: that is when it normalizes."""
        if guard not in self._guarded:
            before = self._stored.get("normalizer")
            remove = {"type": "Replace", "pattern": {"String": guard}, "content": ""}
            normalizers = [remove] if before is None else [remove, before]
            # A special token that is looked for in normalized text would be found without its guard.
            added = [
                {**token, "normalized": False} if token.get("special") else token
                for token in self._stored.get("added_tokens", [])
            ]
            changed = {
                **self._stored,
                "normalizer": {"type": "Sequence", "normalizers": normalizers},
                "added_tokens": added,
            }
            self._guarded[guard] = _engine(json.dumps(changed).encode(), self._shown)
        return self._guarded[guard]


class _Settings:
    """The small JSON files of a folder; a missing one is empty."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._files = {
            name: self._read(name)
            for name in (
                "tokenizer_config.json",
                "special_tokens_map.json",
                "generation_config.json",
                "config.json",
            )
        }

    def shown(self, name: str) -> str:
        """A file as messages call it."""
        return shown_path(self._folder / name)

    def _read(self, name: str) -> dict[str, Any]:
        path = self._folder / name
        return read_object(path) if path.exists() else {}

    def flag(self, key: str, default: bool) -> bool:
        """A flag of tokenizer_config.json."""
        value = self._files["tokenizer_config.json"].get(key)
        if value is not None and not isinstance(value, bool):
            raise InputError(
                f"{self.shown('tokenizer_config.json')}: {key} is {quote(value)}, not true or false"
            )
        return default if value is None else value

    def token(self, kind: str, ids: Mapping[str | bytes, int]) -> int | None:
        """Id of the `bos` or `eos` token, None where no file names one."""
        key = f"{kind}_token"
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            value = self._files[name].get(key)
            text = value.get("content") if isinstance(value, dict) else value
            if value is None:
                continue
            if not isinstance(text, str) or text not in ids:
                raise InputError(f"{self.shown(name)}: {key} is {quote(text)}, not in the vocabulary")
            return ids[text]
        for name in ("generation_config.json", "config.json"):
            if found := self._ids(name, f"{key}_id", len(ids)):
                return found[0]
        return None

    def stop_ids(self, count: int) -> set[int | None]:
        """Every EOS of generation_config.json, or of config.json where that has none."""
        for name in ("generation_config.json", "config.json"):
            if found := self._ids(name, "eos_token_id", count):
                return set(found)
        return set()

    def vocab_size(self) -> int:
        """Of config.json, 0 where it has none."""
        value = self._files["config.json"].get("vocab_size", 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_IDS:
            raise InputError(
                f"{self.shown('config.json')}: vocab_size is {quote(value)}; 0 to {_MAX_IDS} is allowed"
            )
        return value

    def _ids(self, name: str, key: str, count: int) -> list[int]:
        value = self._files[name].get(key)
        found = value if isinstance(value, list) else [] if value is None else [value]
        for index in found:
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
                raise InputError(
                    f"{self.shown(name)}: {key} {quote(index)} is outside the vocabulary of {count} tokens"
                )
        return found


def _parse(data: bytes, shown: str) -> dict[str, Any]:
    try:
        stored = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{shown}: not JSON: {quote(str(error))}") from None
    if not isinstance(stored, dict):
        raise InputError(f"{shown}: is not a JSON object")
    return stored


def _engine(data: bytes, shown: str) -> tokenizers.Tokenizer:
    try:
        engine = tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        reason = str(error).removeprefix("Cannot instantiate Tokenizer from buffer: ")
        raise InputError(f"{shown}: not a tokenizer: {quote(reason)}") from None
    engine.no_truncation()
    engine.no_padding()
    return engine


def _drop_special_merges(stored: dict[str, Any], shown: str, warnings: list[str]) -> bool:
    """Leaves out merges that make a special token; whether there were any."""
    model, added = stored.get("model"), stored.get("added_tokens", [])
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        raise InputError(f"{shown}: model.type is {quote(kind)}; supported: 'BPE'")
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise InputError(f"{shown}: added_tokens is not a list of objects")
    special = {token.get("content") for token in added if token.get("special")}
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise InputError(f"{shown}: model.merges is missing or is not a list")
    # A merge is `["a", "b"]`, or in older files `"a b"`.
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in merges)
    kept = [pair for pair, both in zip(merges, pairs, strict=True) if "".join(map(str, both)) not in special]
    if len(kept) == len(merges):
        return False
    warnings.append(
        f"{shown}: model.merges has {len(merges) - len(kept)} pairs that make a special token, left out"
    )
    model["merges"] = kept
    return True


def _pieces(
    stored: dict[str, Any], engine: tokenizers.Tokenizer, settings: _Settings, shown: str
) -> tuple[list[str | bytes], np.ndarray, bool]:
    """Piece and kind of every id, and whether pieces are byte-level."""
    decoder = stored.get("decoder")
    byte_level = _mentions(decoder, "ByteLevel")
    if not byte_level and not _mentions(decoder, "ByteFallback") and not _mentions(decoder, "Metaspace"):
        kind = decoder.get("type") if isinstance(decoder, dict) else decoder
        raise InputError(f"{shown}: decoder is {quote(kind)}; supported: ByteLevel, ByteFallback, Metaspace")
    known = engine.get_vocab(with_added_tokens=True)
    last = max(known.values(), default=-1)
    if not 0 <= last < _MAX_IDS:
        raise InputError(f"{shown}: the highest token id is {last}; from 0 to {_MAX_IDS - 1} are allowed")
    count = max(last + 1, settings.vocab_size())
    pieces: list[str | bytes] = [f"[PAD{index}]" for index in range(count)]  # as converters to GGUF name them
    types = np.full(count, UNUSED, np.int32)
    for piece, index in known.items():
        pieces[index] = piece
        types[index] = BYTE if not byte_level and byte_value(piece) is not None else NORMAL
    unknown = stored["model"].get("unk_token")
    if unknown in known:
        types[known[unknown]] = UNKNOWN
    for index, token in engine.get_added_tokens_decoder().items():
        types[index] = CONTROL if token.special else USER_DEFINED
    types.flags.writeable = False
    return pieces, types, byte_level


def _post_processor(added: list[int], bos: int | None, eos: int | None, shown: str) -> tuple[bool, bool]:
    """Whether the post-processor puts BOS first and EOS last, from what it adds to an empty text."""
    rest = list(added)
    ends = bool(rest) and rest[-1] == eos and (len(rest) > 1 or bos != eos)
    if ends:
        rest.pop()
    begins = len(rest) == 1 and (bos is None or rest[0] == bos)
    if rest and not begins:
        raise InputError(f"{shown}: post_processor adds tokens {added}, which are not BOS and EOS")
    return begins, ends


def _mentions(part: Any, kind: str) -> bool:
    """Whether a component of tokenizer.json is of a type, or a sequence with one that is."""
    if isinstance(part, dict):
        return part.get("type") == kind or any(
            _mentions(part.get(key), kind) for key in ("decoders", "pretokenizers", "normalizers")
        )
    return isinstance(part, list) and any(_mentions(entry, kind) for entry in part)
