"""Byte-pair vocabularies: what they hold, that training repeats, and that two tokenizers agree."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.byte_pieces import BYTE_OF
from synapse_jax.train.corpus import Document
from synapse_jax.train.vocabulary import END, read_vocabulary_json, train_vocabulary
from tests.small_decoders import SIZE, own_sources, own_vocabulary


def test_bytes_come_first_and_the_end_last():
    vocabulary = own_vocabulary()
    tokenizer = vocabulary.tokenizer
    assert vocabulary.size == tokenizer.vocab_size == SIZE and len(set(vocabulary.pieces)) == SIZE
    assert {tokenizer.decode_bytes([index]) for index in range(256)} == {bytes([i]) for i in range(256)}
    assert all(len(tokenizer.decode_bytes([index])) > 1 for index in range(256, SIZE - 1))
    assert vocabulary.pieces[-1] == END and vocabulary.end_id == SIZE - 1
    assert tokenizer.stop_ids == {SIZE - 1} and tokenizer.bos_id == tokenizer.eos_id == SIZE - 1
    assert not tokenizer.add_bos and not tokenizer.add_eos and tokenizer.warnings == ()
    assert tokenizer.count_lost_bytes(bytes(range(128))) == 0


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_every_process_trains_the_same(seed):
    command = "from tests.small_decoders import own_vocabulary as v; print(v().to_json())"
    made = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == own_vocabulary().to_json() + "\n"


def test_only_the_documents_given_count():
    """A pair that only held-out documents have is no token."""
    vocabulary = own_vocabulary()
    seen = train_vocabulary([*own_sources().train, Document("x", b"zqxjzqxj " * 5000)], SIZE)
    assert vocabulary.sha256 != seen.sha256
    assert "zqxjzqxj" in seen.pieces and "zqxj" not in "".join(vocabulary.pieces)


def test_the_library_gives_the_same_ids():
    vocabulary, held_out = own_vocabulary(), own_sources().held_out
    tokenizer, library = vocabulary.tokenizer, vocabulary.library()
    library.encode_special_tokens = True
    texts = [document.data.decode() for document in held_out]
    texts += [
        "",
        " ",
        "  x\n\n\ty ",
        f"a{END}b",
        "it's 'll Київ 日本 🚀 e\u0301 ١٢٣ ½",
        "\x00\x7f\r\n",
        "'S don'T",
    ]
    for text in texts:
        ids = tokenizer.encode(text)
        assert ids == library.encode(text).ids, text
        assert tokenizer.decode_bytes(ids) == text.encode() and vocabulary.end_id not in ids
    assert sum(map(len, texts)) > 10_000 and library.token_to_id(END) == vocabulary.end_id


def test_json_round_trip():
    vocabulary = own_vocabulary()
    text = vocabulary.to_json()
    again = read_vocabulary_json(text, "v.json")
    assert again == vocabulary and again.sha256 == vocabulary.sha256 and text.isascii()


PIECES, MERGES = [*BYTE_OF, "ab", END], [["a", "b"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a JSON object"),
        ("[1]", "is not a JSON object"),
        ("{}", "is not a JSON object"),
        ({"pieces": PIECES[1:]}, "the first 256 pieces are not the bytes"),
        ({"pieces": PIECES[:-1]}, f"ends in {END}"),
        ({"pieces": [*PIECES[:-1], "ab", END]}, "distinct"),
        ({"pieces": [*PIECES[:-1], 7, END]}, "distinct"),
        ({"pieces": "text"}, "distinct"),
        ({"merges": None}, "merges[0] is not two pieces"),
        ({"merges": [["a", "b"], ["a", "c"]]}, "merges[1] is not two pieces"),
        ({"merges": [["a", "b", "c"]]}, "merges[0] is not two pieces"),
        ({"merges": ["a b"]}, "merges[0] is not two pieces"),
    ],
)
def test_other_json_is_refused(text, words):
    if isinstance(text, dict):
        text = json.dumps({"pieces": PIECES, "merges": MERGES} | text)
    with pytest.raises(InputError) as caught:
        read_vocabulary_json(text, "v.json")
    assert str(caught.value).startswith("v.json: ") and words in str(caught.value)
    assert read_vocabulary_json(json.dumps({"pieces": PIECES, "merges": MERGES}), "").size == len(PIECES)


def test_sizes_that_documents_cannot_give_are_refused():
    with pytest.raises(InputError, match="257"):
        train_vocabulary(own_sources().train, 256)
    with pytest.raises(InputError, match=r"the documents are enough for 259 only"):
        train_vocabulary([Document("x", b"ab ab ab")], 4096)
    assert train_vocabulary([Document("x", b"ab ab ab")], 257).merges == ()


def test_ids_fit_what_a_probe_plants():
    """The copy probe draws ids from 256 up, none of them a byte or a control token."""
    vocabulary = own_vocabulary()
    ids = np.arange(256, vocabulary.end_id)
    assert vocabulary.tokenizer.encode(vocabulary.tokenizer.decode_bytes([ids[0]])) == [ids[0]]
