"""Documents as tokens, and what is cached of them."""

import numpy as np
import pytest

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.tokenizer import build_tokenizer
from synapse_jax.train import cached, tokens
from synapse_jax.train.cached import cached_tokens, corpus_vocabulary
from synapse_jax.train.corpus import Document
from synapse_jax.train.tokens import token_stream
from synapse_jax.train.vocabulary import END
from tests.small_decoders import SIZE, own_sources, own_vocabulary


def same(one, other):
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.starts, other.starts)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path))
    return tmp_path / "texts"


def test_documents_stand_one_after_the_other():
    vocabulary = own_vocabulary()
    documents = [Document("a", b"def f():\n"), Document("b", f"x {END} y".encode()), Document("c", b"\x00")]
    stream = token_stream(documents, vocabulary.tokenizer)
    assert stream.ids.dtype == np.uint16 and stream.starts.dtype == np.int64
    ends = [*stream.starts[1:], len(stream.ids)]
    for document, start, end in zip(documents, stream.starts, ends, strict=True):
        assert stream.ids[end - 1] == vocabulary.end_id
        ids = stream.ids[start : end - 1].tolist()
        assert vocabulary.end_id not in ids and vocabulary.tokenizer.decode_bytes(ids) == document.data
    assert token_stream([], vocabulary.tokenizer).starts.size == 0


def test_vocabularies_that_cannot_be_used_are_refused():
    metadata = own_vocabulary().metadata()
    documents = [Document("odd.txt", b"a\x04\x04")]
    del metadata["tokenizer.ggml.eos_token_id"]
    with pytest.raises(InputError, match="no end token"):
        token_stream(documents, build_tokenizer(metadata, source="x"))
    metadata = own_vocabulary().metadata()
    pieces = metadata["tokenizer.ggml.tokens"]
    metadata["tokenizer.ggml.tokens"] = [piece if piece != "Ą" else "[gone]" for piece in pieces]
    metadata["tokenizer.ggml.merges"] = [m for m in metadata["tokenizer.ggml.merges"] if "Ą" not in m]
    with pytest.raises(InputError, match=r"odd\.txt: the vocabulary has no token for 2 of its bytes"):
        token_stream(documents, build_tokenizer(metadata, source="x"))
    more = (1 << 16) - SIZE + 1
    metadata["tokenizer.ggml.tokens"] = [*pieces, *(f"[{i}]" for i in range(more))]
    metadata["tokenizer.ggml.token_type"] += [1] * more
    with pytest.raises(InputError, match="65537 tokens"):
        token_stream([], build_tokenizer(metadata, source="x"))


def test_tokens_are_encoded_once(cache, monkeypatch):
    documents, vocabulary, lines = own_sources().held_out, own_vocabulary(), []
    first = cached_tokens(documents, vocabulary, log=lines.append)
    assert same(first, token_stream(documents, vocabulary.tokenizer)) and len(lines) == 1
    monkeypatch.setattr(cached, "token_stream", None)
    assert same(cached_tokens(documents, vocabulary, log=lines.append), first) and len(lines) == 1
    assert len(list(cache.iterdir())) == 1


def _swap(ids):
    """As many documents and tokens, but the first tokens of other lengths."""
    ids[0] = 300 if ids[0] < 256 else 0
    return ids


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "empty": lambda path: path.write_bytes(b""),
    "other token": lambda path: np.save(path, _swap(np.load(path))),
    "too large": lambda path: np.save(path, np.load(path) | np.uint16(1 << 15)),
    "other type": lambda path: np.save(path, np.load(path).astype(np.int64)),
    "no end": lambda path: np.save(path, np.load(path)[:-1]),
    "pickled": lambda path: np.save(path, np.array([{}]), allow_pickle=True),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_tokens_are_encoded_again(cache, damage):
    documents, vocabulary, lines = own_sources().held_out, own_vocabulary(), []
    first = cached_tokens(documents, vocabulary, log=lines.append)
    (path,) = cache.iterdir()
    DAMAGES[damage](path)
    assert same(cached_tokens(documents, vocabulary, log=lines.append), first) and len(lines) == 2


def test_other_documents_and_vocabularies_have_files_of_their_own(cache):
    corpus, vocabulary = own_sources(), own_vocabulary()
    cached_tokens(corpus.held_out, vocabulary, log=str)
    cached_tokens(corpus.held_out[1:], vocabulary, log=str)
    smaller = corpus_vocabulary(corpus, 300, log=str)
    cached_tokens(corpus.held_out, smaller, log=str)
    assert len(list(cache.glob("tokens-*"))) == 3


def test_the_vocabulary_is_trained_once_on_the_train_split(cache, monkeypatch):
    lines = []
    first = corpus_vocabulary(own_sources(), SIZE, log=lines.append)
    assert first == own_vocabulary() and len(lines) == 1
    monkeypatch.setattr(cached, "train_vocabulary", None)
    assert corpus_vocabulary(own_sources(), SIZE, log=lines.append) == first and len(lines) == 1
    monkeypatch.undo()


def test_a_damaged_vocabulary_is_trained_again(cache):
    lines = []
    first = corpus_vocabulary(own_sources(), SIZE, log=lines.append)
    (path,) = cache.iterdir()
    path.write_text(path.read_text()[:-5])
    assert corpus_vocabulary(own_sources(), SIZE, log=lines.append) == first
    assert "cannot be used" in lines[1] and len(lines) == 3


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="SYNAPSE_CACHE names another one"):
        cached_tokens(own_sources().held_out, own_vocabulary(), log=str)
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path))

    def full(file, array, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cached.np, "save", full)
    with pytest.raises(RunError, match="No space left on device"):
        cached_tokens(own_sources().held_out, own_vocabulary(), log=str)
    assert list((tmp_path / "texts").iterdir()) == []
    assert tokens.split_stream(np.empty(0, np.uint16), 1).starts.size == 0
