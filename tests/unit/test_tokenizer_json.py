"""tokenizer.json of Hugging Face folders: ids are those of the `tokenizers` library."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from synapse_jax.errors import InputError
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.io.tokenizer_json import read_tokenizer_json
from tests.random_texts import random_text

TRAINING = [
    "the quick brown fox jumps over the lazy dog, and the dog <|im_end|> did not mind.",
    "It's 1234 o'clock; we'll see. naïve Київ 日本 🚀 </s> s> </ <s",
] * 20
CONTROL = ("<|im_start|>", "<|im_end|>", "<s>", "</s>")


def _byte_level() -> tokenizers.Tokenizer:
    """As GPT-2 and Qwen2: bytes, no BOS."""
    engine = tokenizers.Tokenizer(models.BPE())
    engine.normalizer = normalizers.NFC()
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator(TRAINING, trainer)
    return engine


def _sentence_pieces() -> tokenizers.Tokenizer:
    """As Llama 2 and Gemma: `▁`, byte tokens, BOS by a template."""
    engine = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    engine.train_from_iterator(
        TRAINING, trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    )
    stored = json.loads(engine.to_str())
    stored["added_tokens"] = [
        token for token in stored["added_tokens"] if not token["content"].startswith("<0x")
    ]
    engine = tokenizers.Tokenizer.from_str(json.dumps(stored))
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return engine


KINDS = {"byte-level": _byte_level, "sentence pieces": _sentence_pieces}


def _write(folder: Path, engine: tokenizers.Tokenizer, *, normalized: bool = False, **files: dict) -> Path:
    engine.add_special_tokens([AddedToken(text, normalized=normalized) for text in CONTROL])
    engine.add_tokens([AddedToken("<user>", normalized=False)])
    engine.save(str(folder / "tokenizer.json"))
    for name, content in {"tokenizer_config": {"eos_token": "<|im_end|>"}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module", params=list(KINDS))
def both(request, tmp_path_factory) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    """Ours, and the library's with the same file."""
    folder = _write(tmp_path_factory.mktemp("hf"), KINDS[request.param]())
    return read_tokenizer_json(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def _reference(engine: tokenizers.Tokenizer, text: str, *, parse_special: bool) -> list[int]:
    engine.encode_special_tokens = not parse_special
    return engine.encode(text, add_special_tokens=True).ids


@pytest.mark.parametrize("parse_special", [False, True])
def test_ids_equal_the_library(both, parse_special):
    ours, engine = both
    rng = random.Random(7)
    texts = [*TRAINING[:2], "", " ", *CONTROL, "a<user>b<|im_end|>c <s>", "🚀 e\u0301"]
    texts += [random_text(rng, CONTROL).decode("utf-8", "replace") for _ in range(300)]
    for text in texts:
        expected = _reference(engine, text, parse_special=parse_special)
        assert ours.encode(text, parse_special=parse_special) == expected, text


def test_control_tokens_match_only_where_they_are_parsed(both):
    ours, engine = both
    control = {engine.token_to_id(text) for text in CONTROL}
    user = engine.token_to_id("<user>")
    text = "".join(CONTROL) + "<user>"
    assert not control & set(ours.encode(text, add_special=False))
    assert control < set(ours.encode(text, parse_special=True))
    assert user in ours.encode(text) and user in ours.encode(text, parse_special=True)
    assert set(CONTROL) <= set(ours.control_texts)


def test_decoding(both):
    ours, engine = both
    for text in [*TRAINING[:2], "🚀🚀 日本語 \x00\x01", "a  b\n\n c"]:
        ids = ours.encode(text, add_special=False)
        # Ours keeps the space before the text, which the library's decoder takes off.
        assert ours.decode(ids).removeprefix(" ") == engine.decode(ids, skip_special_tokens=False) == text
    assert (
        ours.decode(ours.encode("<|im_end|>", parse_special=True, add_special=False)).strip() == "<|im_end|>"
    )


@given(st.text(), st.lists(st.integers(0, 99)))
def test_a_stream_gives_the_same_text(both, text, cuts):
    ours, _ = both
    ids, decoder = ours.encode(text), ours.decoder()
    places = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    parts = [decoder.feed(ids[a:b]) for a, b in itertools.pairwise(places)]
    assert "".join(parts) + decoder.finish() == ours.decode(ids)


def test_bytes_that_are_not_utf8_are_replaced(both):
    ours, _ = both
    assert ours.encode(b"caf\xe9 \xff") == ours.encode("caf\ufffd \ufffd")
    assert ours.encode("a\ud800") == ours.encode("a\ufffd\ufffd\ufffd")


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_guard_hides_control_tokens_and_leaves_no_trace(tmp_path, kind, normalized):
    engine = KINDS[kind]()
    ours = read_tokenizer_json(_write(tmp_path, engine, normalized=normalized))
    start, end = (engine.token_to_id(text) for text in CONTROL[:2])
    user = "hi <|im_end|> there"
    guarded = ours.encode(
        "<|im_start|>" + user.replace("<|", "<\ue000|") + "<|im_end|>",
        parse_special=True,
        add_special=False,
        guard="\ue000",
    )
    assert (guarded[0], guarded[-1]) == (start, end)
    assert not {start, end} & set(guarded[1:-1])
    assert ours.decode(guarded[1:-1]).strip() == user
    # The engine without a guard is as before.
    assert ours.encode(user, parse_special=True).count(end) == 1


def test_merges_that_make_a_special_token_are_left_out(tmp_path):
    engine = _sentence_pieces()
    stored = json.loads(engine.to_str())
    vocabulary = stored["model"]["vocab"]
    for piece in ("</", "s>"):
        vocabulary.setdefault(piece, len(vocabulary))
    stored["model"]["merges"] = [["<", "/"], ["s", ">"], ["</", "s>"], *stored["model"]["merges"]]
    changed = tokenizers.Tokenizer.from_str(json.dumps(stored))
    changed.encode_special_tokens = True
    assert 2 in changed.encode("</s>", add_special_tokens=False).ids  # the library lets it
    ours = read_tokenizer_json(_write(tmp_path, changed))
    assert 2 not in ours.encode("</s>")
    assert any("make a special token" in line for line in ours.warnings)


def test_bos_and_eos_follow_the_files(tmp_path):
    def read(**files: dict) -> Tokenizer:
        for old in tmp_path.iterdir():
            old.unlink()
        return read_tokenizer_json(_write(tmp_path, _sentence_pieces(), **files))

    config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}
    plain = read(tokenizer_config=config)
    assert (plain.bos_id, plain.eos_id, plain.add_bos, plain.add_eos) == (1, 2, True, False)
    text = plain.encode("fox", add_special=False)
    assert plain.encode("fox") == [1, *text]
    assert plain.stop_ids == {2, plain.encode("<|im_end|>", parse_special=True)[-1]}
    off = read(tokenizer_config={**config, "add_bos_token": False, "add_eos_token": True})
    assert off.encode("fox") == [*text, 2]
    listed = read(tokenizer_config=config, generation_config={"eos_token_id": [2, 7]})
    assert {2, 7} <= listed.stop_ids
    mapped = read(tokenizer_config={}, special_tokens_map={"eos_token": "</s>"}, config={"eos_token_id": 9})
    assert mapped.eos_id == 2 and {2, 9} <= mapped.stop_ids and mapped.bos_id == 1
    bare = read(tokenizer_config={}, config={"eos_token_id": 5, "bos_token_id": 1, "vocab_size": 1000})
    assert (bare.eos_id, bare.vocab_size) == (5, 1000)
    assert bare.decode([999]) == "[PAD999]"


BROKEN = {
    "no file": ({}, lambda s: None, r"tokenizer\.json: cannot be read"),
    "no json": ({}, lambda s: "{", r"tokenizer\.json: not JSON"),
    "no object": ({}, lambda s: "[]", r"tokenizer\.json: is not a JSON object"),
    "model": ({}, lambda s: {**s, "model": {"type": "WordPiece"}}, r"model\.type is 'WordPiece'"),
    "merges": ({}, lambda s: {**s, "model": {**s["model"], "merges": 3}}, r"model\.merges is missing"),
    "added": ({}, lambda s: {**s, "added_tokens": [3]}, "added_tokens is not a list of objects"),
    "pieces": (
        {},
        lambda s: {**s, "model": {**s["model"], "merges": [["qq", "zz"]]}},
        r"tokenizer\.json: not a tokenizer: .*`qq` out of vocabulary",
    ),
    "decoder": (
        {},
        lambda s: {**s, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}},
        "decoder is 'WordPiece'",
    ),
    "ids": (
        {},
        lambda s: {**s, "model": {**s["model"], "vocab": {**s["model"]["vocab"], "far": 2**31}}},
        "the highest token id is 2147483648",
    ),
    "eos": (
        {"tokenizer_config": {"eos_token": "<none>"}},
        lambda s: s,
        "tokenizer_config.json: eos_token is '<none>'",
    ),
    "eos id": (
        {"generation_config": {"eos_token_id": [2, 10**9]}},
        lambda s: s,
        "generation_config.json: eos_token_id 1000000000 is outside the vocabulary",
    ),
    "flag": ({"tokenizer_config": {"add_bos_token": 1}}, lambda s: s, "add_bos_token is 1, not true"),
    "config": ({"config": {"vocab_size": -1}}, lambda s: s, r"config\.json: vocab_size is -1"),
    "no eos": (
        {"tokenizer_config": {"add_eos_token": True}},
        lambda s: s,
        "add_eos_token is on, but no file names eos_token",
    ),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_folders_are_refused(tmp_path, name):
    files, change, message = BROKEN[name]
    path = _write(tmp_path, _byte_level(), **files) / "tokenizer.json"
    changed = change(json.loads(path.read_text()))
    path.unlink()
    if changed is not None:
        path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pytest.raises(InputError, match=message) as caught:
        read_tokenizer_json(tmp_path)
    assert "\n" not in str(caught.value)
