"""Texts that are not what they seem: broken UTF-8, endless runs, names of control tokens."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.io.tokenizer import Tokenizer
from tests.random_texts import AWKWARD


def test_a_lone_surrogate_is_its_three_bytes(smol, gemma):
    for tokenizer in (smol, gemma):
        assert tokenizer.encode("a\ud800b") == tokenizer.encode(b"a\xed\xa0\x80b")
        assert tokenizer.decode_bytes(tokenizer.encode("a\ud800b", add_special=False)) == b"a\xed\xa0\x80b"


def _spaced(data: bytes) -> bytes:
    """Bytes with one sign for a space: broken text may swallow the `▁` of one, as in llama.cpp."""
    return data.replace("▁".encode(), b" ")


def test_bytes_that_are_not_utf8(smol, gemma):
    assert smol.decode(smol.encode(b"a\xffb\xc3(")) == "a\ufffdb\ufffd("
    # Sentence pieces have byte tokens: nothing is lost.
    for data in AWKWARD:
        assert _spaced(gemma.decode_bytes(gemma.encode(data, add_special=False))) == _spaced(data)
    assert smol.encode("caf\u00e9") == smol.encode("café".encode())


@given(st.binary())
def test_any_bytes_have_ids(smol, gemma, data):
    assert _spaced(gemma.decode_bytes(gemma.encode(data, add_special=False))) == _spaced(data)
    smol.encode(data)


@given(st.text())
def test_sentence_pieces_give_back_any_text(gemma, text):
    assert gemma.decode(gemma.encode(text, add_special=False)) == text.replace("▁", " ")


def test_long_runs_take_linear_time(smol, gemma):
    started = time.process_time()
    for text in (character * 50_000 for character in " 1a\n'é"):
        for tokenizer in (smol, gemma):
            assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text
            tokenizer.encode(text.encode("utf-16"))
            tokenizer.encode(text.encode("latin-1"))
    # 3 s; what is quadratic takes minutes.
    assert time.process_time() - started < 40


GUARD = "\ue000"


def _hide(tokenizer: Tokenizer, text: str) -> str:
    """A text with a guard in every control token's name, as a chat hides what its user wrote."""
    for name in sorted(tokenizer.control_texts, key=len, reverse=True):
        text = text.replace(name, name[0] + GUARD + name[1:])
    return text


@pytest.mark.parametrize("name", ["smol", "gemma"])
def test_a_guard_hides_control_tokens_and_leaves_no_trace(name, request):
    tokenizer: Tokenizer = request.getfixturevalue(name)
    control, other = tokenizer.control_texts[1:3]
    user = f"a{control}b {other}{control}c"
    hidden = tokenizer.encode(_hide(tokenizer, user), add_special=False, parse_special=True, guard=GUARD)
    assert hidden == tokenizer.encode(user, add_special=False)
    both = tokenizer.encode(
        control + _hide(tokenizer, user), add_special=False, parse_special=True, guard=GUARD
    )
    begin = tokenizer.encode(control, add_special=False, parse_special=True)
    assert len(begin) == 1 and both == begin + hidden
    # Without the guard the user's text would be taken for the template's.
    assert begin[0] in tokenizer.encode(user, add_special=False, parse_special=True)


def test_no_guarded_text_becomes_a_control_token(smol):
    rng = random.Random(4)
    names = smol.control_texts
    special = {smol.encode(name, parse_special=True)[0] for name in names}
    for _ in range(300):
        user = "".join(rng.choice((*names, "<", "|", ">", "im_", "start", " ", "x", GUARD)) for _ in range(8))
        ids = smol.encode(_hide(smol, user.replace(GUARD, "")), parse_special=True, guard=GUARD)
        assert not special & set(ids)
        assert smol.decode(ids) == user.replace(GUARD, "")
