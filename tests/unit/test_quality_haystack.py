"""The text that facts are hidden in."""

from __future__ import annotations

import pytest

from synapse_jax.errors import InputError
from synapse_jax.evals.tasks.haystack import Haystack, project_haystack, read_haystack


def test_a_haystack_is_its_files(tmp_path):
    for name, text in (("a.txt", "One line.\n\n"), ("b.txt", "  Another.")):
        (tmp_path / name).write_text(text)
    found = read_haystack([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    assert found.text == "One line.\n\nAnother.\n"
    assert [name for name, _ in found.files] == ["a.txt", "b.txt"]
    found.check(found.sha256)
    with pytest.raises(InputError, match="was asked for"):
        found.check("0" * 64)
    (tmp_path / "c.txt").write_text(" \n")
    (tmp_path / "d.txt").write_bytes(b"\xff")
    for name, reason in (
        ("c.txt", "no text to hide"),
        ("d.txt", "not valid UTF-8"),
        ("e.txt", "cannot be read"),
    ):
        with pytest.raises(InputError, match=reason):
            read_haystack([str(tmp_path / name)])


def test_sentences_are_the_text_in_short_pieces():
    text = "First. Second one!\n    Indented? yes\n\n\n" + "word " * 200 + "\n" + "x" * 900 + "\nEnd\n"
    found = Haystack(text, ()).sentences
    assert "".join(found) == text
    assert found[:4] == ("First. ", "Second one!\n", "    Indented? ", "yes\n\n\n")
    assert sorted(len(piece) for piece in found)[-1] == 901 and all(
        len(piece) <= 300 for piece in found if "x" * 9 not in piece
    )


def test_the_projects_own_haystack_is_documents_then_code():
    found = project_haystack()
    names = [name for name, _ in found.files]
    assert names[:4] == ["README.md", "BUILD.md", "CHANGELOG.md", "synapse_jax/__init__.py"]
    assert names[3:] == sorted(names[3:]) and "synapse_jax/cli/main.py" in names
    # What is asked for is not told there.
    assert not any("evals/tasks" in name for name in names)
    assert "secret number of" not in found.text and found.text.startswith("# Synapse")
    # As many tokens as the longest runs need.
    assert len(found.text) > 131_072 * 5
