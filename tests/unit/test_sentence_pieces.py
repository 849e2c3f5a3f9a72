"""SentencePiece vocabularies that are unusual or broken."""

from __future__ import annotations

import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.tokenizer import build_tokenizer
from tests.spm_vocabulary import SPM_TEXTS, spm_vocabulary


def test_sentence_pieces_without_byte_tokens():
    metadata = spm_vocabulary()
    keep = [index for index, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind != 6]
    for key in ("tokens", "token_type", "scores"):
        metadata[f"tokenizer.ggml.{key}"] = [metadata[f"tokenizer.ggml.{key}"][index] for index in keep]
    tokenizer = build_tokenizer(metadata, source="f")
    # llama.cpp fails there. A byte without a token is the unknown token, or lost where there is none.
    assert tokenizer.encode("é", add_special=False)[-2:] == [0, 0]
    assert tokenizer.count_lost_bytes("é") == 0
    metadata["tokenizer.ggml.tokens"][0] = "<nothing>"
    metadata["tokenizer.ggml.token_type"][0] = 1
    none = build_tokenizer({**metadata, "tokenizer.ggml.unknown_token_id": 0}, source="f")
    assert none.encode("é", add_special=False)[-2:] == [0, 0]


def test_defaults_of_sentence_pieces_come_with_a_warning():
    tokenizer = build_tokenizer(spm_vocabulary(bos_token_id=None, eos_token_id=None, scores=None), source="f")
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, True)
    for key in ("bos_token_id", "eos_token_id", "scores"):
        assert any(key in line for line in tokenizer.warnings)


BROKEN_SPM = {
    "scores": ({"scores": [0.0]}, r"scores has 1 entries for \d+"),
    "no number": ({"scores": ["x"] * 10_000}, "scores has 10000 entries"),
    "eos": ({"eos_token_id": 10**6}, "eos_token_id is 1000000, outside the vocabulary of"),
    "bos": ({"bos_token_id": -1}, "bos_token_id is -1"),
    "prefix": ({"add_space_prefix": 1}, "add_space_prefix is 1, not true or false"),
    "type": ({"token_type": ["x"] * 10_000}, "token_type has 10000 entries"),
}


@pytest.mark.parametrize("name", list(BROKEN_SPM))
def test_broken_sentence_pieces_are_refused(name):
    changes, message = BROKEN_SPM[name]
    with pytest.raises(InputError, match=rf"^f\.gguf: tokenizer\.ggml\.{message}"):
        build_tokenizer(spm_vocabulary(**changes), source="f.gguf")
    metadata = spm_vocabulary()
    metadata["tokenizer.ggml.scores"][3] = float("nan")
    with pytest.raises(InputError, match=r"scores\[3\] is nan, not a float32 number"):
        build_tokenizer(metadata, source="f.gguf")


def test_pieces_that_no_library_takes_keep_their_ids():
    metadata = spm_vocabulary()
    at = len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.tokens"] += [b"\xff\xfe", "a\0b", "x" * 300, "▁" * 40]
    metadata["tokenizer.ggml.token_type"] += [1] * 4
    metadata["tokenizer.ggml.scores"] += [-1.0] * 4
    tokenizer = build_tokenizer(metadata, source="f")
    assert [tokenizer.decode_bytes([at + index]) for index in range(4)] == [
        b"\xff\xfe",
        b"a\0b",
        b"x" * 300,
        b" " * 40,
    ]
    plain = build_tokenizer(spm_vocabulary(), source="f")
    for text in SPM_TEXTS:
        assert tokenizer.encode(text) == plain.encode(text)
