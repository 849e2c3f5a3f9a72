"""Lists of token ids as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse_jax.errors import InputError
from synapse_jax.io.tokens_file import LARGEST_ID, check_token_ids, parse_tokens, read_tokens_file


@pytest.mark.parametrize(
    "text", ["1 2 30", "1,2,30", "1, 2 ,30\n", "\n 1\t2\r\n30 ", "[1, 2, 30]", " [1,2,30]\n", "01 2 030"]
)
def test_every_form_gives_the_same_ids(text, tmp_path):
    assert parse_tokens(text, "f") == [1, 2, 30]
    path = tmp_path / "tokens.txt"
    path.write_text(text)
    assert read_tokens_file(path) == [1, 2, 30]


@given(st.lists(st.integers(0, LARGEST_ID), min_size=1), st.sampled_from([" ", ",", "\n", " , "]))
def test_written_ids_are_read_back(ids, separator):
    assert parse_tokens(separator.join(map(str, ids)), "f") == ids
    assert parse_tokens(str(ids), "f") == ids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no token ids"),
        (" \n", "holds no token ids"),
        ("[]", "holds no token ids"),
        ("1,,2", "token 1 at character 2 is empty"),
        ("1 , , 2", "token 1 at character 4 is empty"),
        (",1", "token 0 at character 0 is empty"),
        ("1,", "token 1 at character 1 is empty"),
        ("1 -2", "token 1 at character 2 is '-2'"),
        ("1.0", "token 0 at character 0 is '1.0'"),
        ("1e3", "'1e3'"),
        ("0x10", "'0x10'"),
        ("1_000", "'1_000'"),
        ("+1", r"'\+1'"),
        ("true", "'true'"),
        ("٣", "'\\\\u0663'"),
        ("1;2", "'1;2'"),
        ("2147483648", "'2147483648'"),
        ("9" * 5000, "token 0 .* … "),
        ("x" * 5000, "token 0 .* … "),
        ("[1, -2]", "token 1 is '-2'"),
        ("[1.0]", r"token 0 is '1\.0'"),
        ("[true]", "token 0 is 'true'"),
        ('["1"]', "token 0 is"),
        ("[[1]]", "token 0 is 'a list'"),
        ("[null]", "token 0 is 'null'"),
        ("[NaN]", "token 0 is 'NaN'"),
        ("[2147483648]", "token 0 is '2147483648'"),
        ("[1,]", "not a JSON array .* at character 3"),
        ("[1", "not a JSON array"),
        ("[1] 2", "not a JSON array .* at character 4"),
        ("[" * 100_000, "not a JSON array"),
        ("[" + "9" * 5000 + "]", "not a JSON array"),
    ],
    ids=lambda value: value[:12],
)
def test_malformed_lists_are_refused_in_one_short_line(text, message):
    with pytest.raises(InputError, match=f"^tokens.txt: .*{message}") as caught:
        parse_tokens(text, "tokens.txt")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_files_that_are_not_text_are_refused(tmp_path):
    path = tmp_path / "tokens.bin"
    path.write_bytes(b"1 2 \xff")
    with pytest.raises(InputError, match=r"tokens\.bin: byte 0xFF at offset 4"):
        read_tokens_file(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_tokens_file(tmp_path / "none")


def test_ids_are_checked_against_the_vocabulary():
    check_token_ids([0, 9], 10, "f")
    with pytest.raises(InputError, match="f: token 1 is 10, outside the vocabulary of 10"):
        check_token_ids([9, 10], 10, "f")
