"""Documents, their order, their splits, and the archive of the default ones."""

import hashlib
import zipfile

import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.train import python_sources
from synapse_jax.train.corpus import (
    HELD_OUT_SHARE,
    Document,
    documents_from_folder,
    documents_sha256,
    make_corpus,
)

TEXTS = [f"text {i}\n".encode() for i in range(400)]


def corpus_of(texts, **options):
    return make_corpus("texts", [Document(f"{i}.txt", text) for i, text in enumerate(texts)], **options)


def test_the_digest_decides_order_and_split():
    corpus = corpus_of(TEXTS)
    digests = [hashlib.sha256(document.data).hexdigest() for document in corpus.documents]
    assert digests == sorted(digests) and len(digests) == len(TEXTS)
    share = [int(digest, 16) / 2**256 for digest in digests]
    assert [document.data for document in corpus.held_out] == [
        document.data for document, at in zip(corpus.documents, share, strict=True) if at < HELD_OUT_SHARE
    ]
    assert {*corpus.train, *corpus.held_out} == {*corpus.documents}
    assert not {*corpus.train} & {*corpus.held_out} and 10 <= len(corpus.held_out) <= 30
    assert corpus.sha256 == hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def test_names_and_input_order_change_nothing():
    one, other = corpus_of(TEXTS), corpus_of(TEXTS[::-1])
    assert one.sha256 == other.sha256 and documents_sha256(one.train) == documents_sha256(other.train)
    assert corpus_of(TEXTS[:-1]).sha256 != one.sha256


def test_what_is_left_out_is_counted():
    corpus = corpus_of([*TEXTS, TEXTS[7], b"", b"", b"caf\xe9", b"\xed\xa0\x80"])
    assert (corpus.repeated, corpus.empty, corpus.not_utf8) == (1, 2, 2)
    assert corpus.sha256 == corpus_of(TEXTS).sha256
    assert "7.txt" in [document.name for document in corpus.documents]  # the first of two equal ones


@pytest.mark.parametrize("texts", [[], TEXTS[:1], [b"\xff"]])
def test_a_corpus_without_two_splits_is_refused(texts):
    with pytest.raises(InputError, match=r"here: \d documents make .* both need at least one"):
        corpus_of(texts, source="here")


def test_a_folder(tmp_path):
    root = tmp_path / "notes"
    for i, text in enumerate(TEXTS):
        path = root / f"part{i % 3}" / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("hidden")
    (root / ".hidden").write_text("hidden too")
    (root / "latin").write_bytes(b"caf\xe9")
    (root / "loop").symlink_to(root)
    corpus = documents_from_folder(root)
    assert corpus.sha256 == corpus_of(TEXTS).sha256 and corpus.not_utf8 == 1
    assert corpus.name == "notes" and "part1/1.txt" in [document.name for document in corpus.documents]


def test_a_folder_that_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match="is not a folder of text files"):
        documents_from_folder(tmp_path / "none")
    with pytest.raises(InputError, match=f"{tmp_path}: 0 documents"):
        documents_from_folder(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="broken: cannot be read"):
        documents_from_folder(tmp_path)


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """Two wheels instead of the pinned ones; how often one was downloaded."""
    downloads = []
    texts = {"alpha": TEXTS[:300], "beta": [*TEXTS[300:], b"", TEXTS[0], b"\xff"]}

    def download(wheel, folder, *, log, bar):
        downloads.append(wheel.requirement)
        path = folder / f"{wheel.requirement}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{wheel.requirement}/data.txt", "no source")
            for i, text in enumerate(texts[wheel.requirement]):
                archive.writestr(f"{wheel.requirement}/{i}.py", text)
        return path

    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(python_sources, "download_wheel", download)
    pins = tuple(python_sources.Wheel(requirement=name, size=1, sha256="0") for name in texts)
    monkeypatch.setattr(python_sources, "WHEELS", pins)
    monkeypatch.setattr(python_sources, "SHA256", corpus_of(TEXTS).sha256)
    return downloads


def archives(tmp_path):
    return list((tmp_path / "cache" / "texts").glob("python-sources-*.zip"))


def test_sources_are_fetched_once(tmp_path, wheels):
    first, lines = python_sources.python_sources(log=lambda line: None), []
    assert python_sources.python_sources(log=lines.append) == first and lines == []
    assert wheels == ["alpha", "beta"] and first.sha256 == corpus_of(TEXTS).sha256
    assert (first.repeated, first.empty, first.not_utf8) == (1, 1, 1)
    assert first.license and not list((tmp_path / "cache" / "texts").glob(".fetch-*"))


@pytest.mark.parametrize("damage", ["cut", "bytes", "other"])
def test_a_damaged_archive_is_made_again(tmp_path, wheels, damage):
    first = python_sources.python_sources(log=lambda line: None)
    (archive,) = archives(tmp_path)
    stored = archive.read_bytes()
    if damage == "other":
        with zipfile.ZipFile(archive, "w") as contents:
            contents.writestr("a.py", "other")
    else:
        archive.write_bytes(stored[:-40] if damage == "cut" else stored[:200] + bytes(60) + stored[260:])
    assert python_sources.python_sources(log=lambda line: None) == first
    assert len(wheels) == 4 and archive.read_bytes() == stored


def test_wheels_of_other_texts_leave_nothing(tmp_path, wheels, monkeypatch):
    monkeypatch.setattr(python_sources, "SHA256", "0" * 64)
    with pytest.raises(RunError, match=f"sha256 {corpus_of(TEXTS).sha256}, expected 0000"):
        python_sources.python_sources(log=lambda line: None)
    assert not archives(tmp_path)
    assert [path.name for path in (tmp_path / "cache" / "texts").iterdir()] == [".lock"]


def test_a_wheel_that_is_no_archive_is_named(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"no zip")
    with pytest.raises(RunError, match=r"a\.whl: cannot be read"):
        list(python_sources.read_sources(tmp_path / "a.whl"))
