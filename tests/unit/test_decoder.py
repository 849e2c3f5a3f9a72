"""Tokens that come one after the other give the text that they give together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer
from tests.pair_vocabulary import pair_vocabulary
from tests.spm_vocabulary import spm_vocabulary

TOKENIZERS = {
    "bpe": build_tokenizer(pair_vocabulary(["Hello", "🚀é"], "gpt-2"), source="pairs"),
    "spm": build_tokenizer(spm_vocabulary(), source="spm"),
}


def _stream(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> list[str]:
    decoder = tokenizer.decoder()
    places = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    parts = [decoder.feed(ids[a:b]) for a, b in itertools.pairwise(places)]
    return [*parts, decoder.finish()]


@given(st.data(), st.lists(st.integers(0, 1000)))
@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_any_cut_gives_the_same_text(name, data, cuts):
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    assert "".join(_stream(tokenizer, ids, cuts)) == tokenizer.decode(ids)


@given(st.text() | st.binary(), st.lists(st.integers(0, 1000)))
@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_text_comes_back_whole(name, text, cuts):
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text)
    assert "".join(_stream(tokenizer, ids, cuts)) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_a_character_is_never_cut(name):
    tokenizer = TOKENIZERS[name]
    decoder = tokenizer.decoder()
    ids = tokenizer.encode("a🚀é", add_special=False)
    assert len(ids) > 3
    seen = [decoder.feed([index]) for index in ids]
    assert [part.strip() for part in seen if part.strip()] == ["a", "🚀", "é"] and decoder.finish() == ""


def test_what_never_ends_shows_at_the_end():
    tokenizer = TOKENIZERS["spm"]
    decoder = tokenizer.decoder()
    ids = tokenizer.encode(b"x\xf0\x9f\x9a", add_special=False)
    assert decoder.feed(ids).strip() == "x"
    assert decoder.finish() == "\ufffd"
    # It starts anew, without what was left.
    assert decoder.feed(tokenizer.encode("x")[-1:]).strip() == "x" and decoder.finish() == ""


def test_a_continuation_keeps_its_space():
    tokenizer = TOKENIZERS["spm"]
    for text in ("Hello world", "the three", "hello\nworld\n", "ab abc"):
        ids = tokenizer.encode(text, add_special=False)
        assert tokenizer.decode(ids) == " " + text
        decoder = tokenizer.decoder()
        assert "".join(decoder.feed([index]) for index in ids) == " " + text


def test_control_tokens_show_or_not():
    for tokenizer in TOKENIZERS.values():
        ids = [tokenizer.bos_id, *tokenizer.encode("x", add_special=False), tokenizer.eos_id]
        shown, hidden = tokenizer.decoder(), tokenizer.decoder(special=False)
        assert shown.feed(ids).startswith("<") and hidden.feed(ids).strip() == "x"


def test_a_wrong_id_changes_nothing():
    decoder = TOKENIZERS["bpe"].decoder()
    with pytest.raises(InputError, match="token id 100000 is outside"):
        decoder.feed([65, 100_000])
    assert decoder.feed([65]) == "A"
