"""Text to ids and back: special tokens, broken text, broken files. Ids: test_tokenizer_goldens.py."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.pre_tokenizers import PRE_TOKENIZERS
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer
from synapse_jax.io.unicode_classes import class_table
from tests.pair_vocabulary import CONTROL, pair_vocabulary

GOLDEN = Path(__file__).parent.parent / "golden"
SMOL = json.loads((GOLDEN / "tokenizer_smollm2.json").read_text())
TEXTS = json.loads(gzip.decompress((GOLDEN / "tokenizer_pairs.json.gz").read_bytes()))["texts"]


def _pairs(pre: str | None = "gpt-2", **changes) -> dict:
    metadata = pair_vocabulary(TEXTS, pre)
    for key, value in changes.items():
        metadata[f"tokenizer.ggml.{key}"] = value
    return {key: value for key, value in metadata.items() if value is not None}


@pytest.mark.parametrize("parse_special", [False, True])
def test_smollm2_ids_equal_llama_cpp(smol, parse_special):
    key = "ids_special" if parse_special else "ids"
    got = {case["text"]: smol.encode(case["text"], parse_special=parse_special) for case in SMOL["cases"]}
    assert got == {case["text"]: case[key] for case in SMOL["cases"]}


def test_smollm2_facts(smol):
    assert (smol.vocab_size, smol.bos_id, smol.eos_id, smol.add_bos, smol.add_eos) == (
        49152,
        1,
        2,
        False,
        False,
    )
    # llama.cpp prints the same three; 4 is <reponame>.
    assert smol.stop_ids == {0, 2, 4}
    assert smol.warnings == ()
    assert smol.token_text(2) == "<|im_end|>"
    assert smol.control_texts[:3] == ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def test_gemma_facts(gemma):
    assert (gemma.vocab_size, gemma.bos_id, gemma.eos_id, gemma.add_bos, gemma.add_eos) == (
        262144,
        2,
        1,
        True,
        False,
    )
    assert {gemma.token_text(index) for index in gemma.stop_ids} == {"<eos>", "<end_of_turn>", "</s>"}
    assert {1, 106} <= gemma.stop_ids
    assert gemma.encode("") == [2]
    assert gemma.encode("hi") == [2, 2202]
    # A continuation keeps its space, and so does the text before it.
    assert gemma.decode(gemma.encode(" hi  there", add_special=False)) == " hi  there"


def test_a_large_vocabulary_is_soon_there(gemma_path):
    started = time.process_time()
    with open_gguf(gemma_path) as file:
        build_tokenizer(file.metadata, source=gemma_path.name)
    # 0.9 s here; the reader of the gguf package needs 16 s for the header alone.
    assert time.process_time() - started < 4


def test_control_text_is_plain_text_unless_asked_for(smol):
    text = "<|im_start|>user"
    assert 1 not in smol.encode(text)
    assert smol.encode(text, parse_special=True)[0] == 1


def test_speed(smol, smol_path):
    text = "The quick brown fox jumps over 13 lazy dogs.\n" * 7000
    started = time.perf_counter()
    ids = smol.encode(text)
    # 0.07 s on one core; ten times that only where something is quadratic.
    assert time.perf_counter() - started < 2
    assert smol.decode(ids) == text


@given(st.text())
def test_decode_gives_back_any_text(smol, text):
    if smol.count_lost_bytes(text) == 0:
        assert smol.decode(smol.encode(text)) == text
        assert smol.decode_bytes(smol.encode(text, parse_special=True)) == text.encode()


@given(st.text())
@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "llama-bpe", "default"])
def test_decode_gives_back_any_text_for_every_split(pre, text):
    tokenizer = _small(pre)
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


_BUILT: dict[str, Tokenizer] = {}


def _small(pre: str) -> Tokenizer:
    if pre not in _BUILT:
        _BUILT[pre] = build_tokenizer(_pairs(pre), source="pairs")
    return _BUILT[pre]


def test_lost_bytes_are_counted(smol):
    assert smol.count_lost_bytes("a\x04b\x13") == 2
    assert smol.decode(smol.encode("a\x04b\x13")) == "ab"
    assert smol.count_lost_bytes("plain — ünïcode 🚀") == 0


def test_what_has_no_token_keeps_its_neighbours_apart(smol):
    # As in llama.cpp, which leaves a character without a piece where it is until all merging is done.
    equals = smol.encode("=")
    assert smol.encode("=\x04=") == 2 * equals
    assert len(smol.encode("==")) == 1


def test_decode_keeps_every_byte(smol):
    ids = smol.encode("🚀")
    assert smol.decode_bytes(ids[:1]) == "🚀".encode()[: len(smol.decode_bytes(ids[:1]))]
    assert b"".join(smol.decode_bytes([index]) for index in ids) == "🚀".encode()
    assert smol.decode([1, 19556]) == "<|im_start|>Hello"
    assert smol.decode([1, 19556], special=False) == "Hello"


def test_bytes_entry_is_kept_as_bytes():
    metadata = _pairs()
    pieces = [*metadata["tokenizer.ggml.tokens"], b"\xff\xfe"]
    tokenizer = build_tokenizer(
        {
            **metadata,
            "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.token_type": [*metadata["tokenizer.ggml.token_type"], 1],
        },
        source="f",
    )
    assert tokenizer.decode_bytes([len(pieces) - 1]) == b"\xff\xfe"
    assert tokenizer.token_text(len(pieces) - 1) == "\\xff\\xfe"
    assert any("not valid UTF-8" in warning for warning in tokenizer.warnings)


def test_bos_and_eos_follow_the_file():
    begin = _pairs()["tokenizer.ggml.bos_token_id"]
    end = _pairs()["tokenizer.ggml.eos_token_id"]
    plain = build_tokenizer(_pairs("llama-bpe"), source="f").encode("a", add_special=False)
    assert build_tokenizer(_pairs("llama-bpe"), source="f").encode("a") == [begin, *plain]
    off = build_tokenizer(_pairs("llama-bpe", add_bos_token=False), source="f")
    assert off.encode("a") == plain
    both = build_tokenizer(_pairs(add_bos_token=True, add_eos_token=True), source="f")
    assert both.encode("a") == [begin, *plain, end]


def test_whole_words_are_taken_only_where_merges_are_ignored():
    assert len(build_tokenizer(_pairs("llama-bpe"), source="f").encode("Hello", add_special=False)) == 1
    assert len(build_tokenizer(_pairs("gpt-2"), source="f").encode("Hello", add_special=False)) > 1


def test_missing_pre_tokenizer_is_the_default_with_a_warning():
    for pre in (None, "default"):
        (warning,) = build_tokenizer(_pairs(pre), source="f.gguf").warnings
        assert "tokenizer.ggml.pre" in warning
        assert "f.gguf" in warning


def test_stop_texts_become_control_tokens():
    metadata = _pairs()
    types = [4 if piece in CONTROL else kind for piece, kind in zip(
        metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True
    )]  # fmt: skip
    tokenizer = build_tokenizer({**metadata, "tokenizer.ggml.token_type": types}, source="f")
    end = metadata["tokenizer.ggml.eos_token_id"]
    assert tokenizer.stop_ids == {end}
    assert end not in tokenizer.encode("<|im_end|>")
    assert any("<|im_end|>" in warning for warning in tokenizer.warnings)


def _broken(change) -> dict:
    metadata = _pairs()
    change(metadata)
    return metadata


BROKEN = {
    "pre": (lambda m: m.update({"tokenizer.ggml.pre": "kimi-k2"}), "'kimi-k2'.*smollm.*llama-bpe.*qwen2"),
    "model": (lambda m: m.update({"tokenizer.ggml.model": "bert"}), "'bert'.*'gpt2'"),
    "no model": (lambda m: m.pop("tokenizer.ggml.model"), "no tokenizer.ggml.model"),
    "no tokens": (lambda m: m.pop("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens"),
    "no merges": (lambda m: m.pop("tokenizer.ggml.merges"), "tokenizer.ggml.merges"),
    "types": (lambda m: m["tokenizer.ggml.token_type"].pop(), r"token_type has \d+ entries for \d+"),
    "scores": (lambda m: m.update({"tokenizer.ggml.scores": [0.0]}), r"scores has 1 entries for \d+"),
    "duplicate": (
        lambda m: m["tokenizer.ggml.tokens"].__setitem__(7, "A"),
        r"tokens\[65\] 'A' repeats .*\[7\]",
    ),
    "merge": (lambda m: m["tokenizer.ggml.merges"].append("a zzz"), r"merges\[\d+\] 'a zzz' needs 'zzz'"),
    "merged": (lambda m: m["tokenizer.ggml.merges"].append("~ ~"), r"'~ ~' needs '~~'"),
    "one piece": (lambda m: m["tokenizer.ggml.merges"].append("abc"), r"'abc' is not two pieces"),
    "no text": (lambda m: m["tokenizer.ggml.merges"].append(3), r"merges\[\d+\] 3 is not two pieces"),
    "bytes": (lambda m: m["tokenizer.ggml.merges"].append(b"a b"), "b'a b' is not two pieces"),
    "shifted": (lambda m: m["tokenizer.ggml.merges"].extend(["a b c", "d"]), "'a b c' needs 'b c'"),
    "eos": (
        lambda m: m.update({"tokenizer.ggml.eos_token_id": 10**6}),
        "eos_token_id is 1000000, outside.*of",
    ),
    "negative": (lambda m: m.update({"tokenizer.ggml.bos_token_id": -1}), "bos_token_id is -1"),
    "flag": (lambda m: m.update({"tokenizer.ggml.add_bos_token": "yes"}), "add_bos_token is 'yes'"),
    "no bos": (
        lambda m: (m.update({"tokenizer.ggml.add_bos_token": True}), m.pop("tokenizer.ggml.bos_token_id")),
        "bos_token_id is missing",
    ),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_vocabularies_are_refused(name):
    change, message = BROKEN[name]
    with pytest.raises(InputError, match=rf"^f\.gguf: .*{message}") as caught:
        build_tokenizer(_broken(change), source="f.gguf")
    assert "\n" not in str(caught.value)


def test_ids_outside_the_vocabulary_are_refused(smol):
    for index in (-1, 49152):
        with pytest.raises(InputError, match=f"{index}.*49152"):
            smol.decode([index])


def test_merges_never_make_a_control_token():
    metadata = _pairs()
    pieces, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    made = merges[50].replace(" ", "")
    types = list(metadata["tokenizer.ggml.token_type"])
    types[pieces.index(made)] = 3
    tokenizer = build_tokenizer({**metadata, "tokenizer.ggml.token_type": types}, source="f")
    plain = build_tokenizer(metadata, source="f")
    text = plain.decode([pieces.index(made)])
    assert plain.encode(text) == [pieces.index(made)]
    assert len(tokenizer.encode(text)) == 2
    (warning,) = (line for line in tokenizer.warnings if "control token" in line)
    assert "merges has 1 pairs" in warning


def test_supported_names():
    assert {"smollm", "gpt-2", "qwen2", "llama-bpe", "llama3", "llama-v3"} <= PRE_TOKENIZERS.keys()


def test_character_classes_are_unicode_15_1():
    # The digest of llama.cpp's own table (src/unicode-data.cpp), with ASCII as it is.
    digest = hashlib.sha256(class_table().tobytes()).hexdigest()
    assert digest == "3305dbb3e58ac9b368fd3e6899d203988545cf4084047a852de312c62c9dba08"
