"""Text files are read as bytes and must be UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.text_file import describe_bad_bytes, drop_trailing_newline, read_bytes, read_text


def test_text_is_read_as_it_is(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\x00\xc3\xa9\n\n")
    assert read_text(path) == "\ufeffa\r\nb\x00é\n\n"


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"caf\xe9 au lait", 3),
        (b"ab\x80", 2),
        (b"\xff\xfeh\x00i\x00", 0),
        (b"x\xed\xa0\x80", 1),
        (b"\xc3", 0),
    ],
)
def test_other_encodings_are_refused_with_the_offset(tmp_path, data, offset):
    path = tmp_path / "text"
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"text: .*0x{data[offset]:02X} at offset {offset} of {len(data)}"):
        read_text(path)


def test_one_line_tells_where_a_text_is_not_utf8():
    assert describe_bad_bytes("Київ\0\ufeff".encode(), "t") is None
    line = describe_bad_bytes(b"caf\xe9 \xff", "t.txt")
    assert line == "t.txt: not valid UTF-8: byte 0xE9 at offset 3 of 6; tokenized as llama.cpp does"
    assert "UTF-16" in describe_bad_bytes("Київ".encode("utf-16"), "t.txt")


def test_missing_file_and_folder_are_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path, "nul\0"):
        for read in (read_text, read_bytes):
            with pytest.raises(InputError, match="cannot be read"):
                read(path)


def test_locale_does_not_matter(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("Київ\r\n".encode())
    code = "import sys; from synapse_jax.io.text_file import read_text; print(ascii(read_text(sys.argv[1])))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, path], env=environment, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == ascii("Київ\r\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n", ("a", True)),
        ("a\n\n", ("a\n", True)),
        ("a", ("a", False)),
        ("", ("", False)),
        ("a\r\n", ("a\r", True)),
    ],
)
def test_exactly_one_newline_is_dropped(text, expected):
    assert drop_trailing_newline(text) == expected
    assert drop_trailing_newline(text.encode()) == (expected[0].encode(), expected[1])
