"""Ids equal llama.cpp's, recorded on real and small vocabularies, and the pairs that llama.cpp tests with."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from synapse_jax.io.pre_tokenizers import PRE_TOKENIZERS
from synapse_jax.io.tokenizer import Tokenizer, build_tokenizer
from tests.pair_vocabulary import pair_vocabulary
from tests.random_texts import AWKWARD
from tests.spm_vocabulary import REACHED, SPM_TEXTS, spm_vocabulary

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools import vocabularies

GOLDEN = Path(__file__).parent.parent / "golden"
PAIRS = json.loads(gzip.decompress((GOLDEN / "tokenizer_pairs.json.gz").read_bytes()))
RANDOM = json.loads(gzip.decompress((GOLDEN / "tokenizer_random.json.gz").read_bytes()))
RANDOM_TEXTS = [base64.b64decode(text) for text in RANDOM["texts"]]
SPM = json.loads((GOLDEN / "tokenizer_spm.json").read_text())["vocabularies"]


def _differences(tokenizer: Tokenizer, texts: list, golden: dict) -> list[tuple]:
    """Text, whether special tokens were parsed, our ids, llama.cpp's; for each text where they differ."""
    found = []
    for text, plain, special in zip(texts, golden["ids"], golden["ids_special"], strict=True):
        for parse, expected in ((False, plain), (True, plain if special is None else special)):
            ids = tokenizer.encode(text, parse_special=parse)
            if ids != expected:
                found.append((text, parse, ids, expected))
    return found


def test_random_strings_on_smollm2(smol):
    assert len(RANDOM_TEXTS) >= 500
    assert _differences(smol, RANDOM_TEXTS, RANDOM["models"]["smollm2"]) == []


def test_random_strings_on_gemma(gemma):
    assert _differences(gemma, RANDOM_TEXTS, RANDOM["models"]["gemma-3-270m"]) == []


def test_random_strings_are_hard_enough():
    broken = sum(b"\xef\xbf\xbd" in text.decode("utf-8", "replace").encode() for text in RANDOM_TEXTS)
    assert broken > 100
    for golden in RANDOM["models"].values():
        assert sum(special is not None for special in golden["ids_special"]) > 50


@pytest.mark.parametrize("pre", list(PAIRS["names"]))
def test_every_split_equals_llama_cpp(pre):
    metadata = pair_vocabulary(PAIRS["texts"], None if pre == "missing" else pre)
    tokenizer = build_tokenizer(metadata, source="pairs")
    assert _differences(tokenizer, PAIRS["texts"], PAIRS["results"][PAIRS["names"][pre]]) == []


def test_goldens_cover_every_name_and_tell_rules_apart():
    names = PAIRS["names"]
    assert set(names) == {*PRE_TOKENIZERS, "default", "missing"}
    for name, rule in PRE_TOKENIZERS.items():
        alike = {other for other, same in PRE_TOKENIZERS.items() if names[other] == names[name]}
        assert {other for other, same in PRE_TOKENIZERS.items() if same == rule} <= alike
    # One rule less and the default: what `bailingmoe` does differently from `qwen2` shows in no text.
    assert len(PAIRS["results"]) >= len(set(PRE_TOKENIZERS.values()))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("plain", {}),
        ("no prefix", {"add_space_prefix": False}),
        ("no bos", {"add_bos_token": False, "add_eos_token": True}),
    ],
)
def test_small_sentence_piece_vocabulary_equals_llama_cpp(name, changes):
    tokenizer = build_tokenizer(spm_vocabulary(**changes), source="spm")
    assert _differences(tokenizer, [*SPM_TEXTS, *AWKWARD], SPM[name]) == []


def test_text_never_becomes_a_control_token_although_llama_cpp_lets_it():
    tokenizer = build_tokenizer(spm_vocabulary(reachable=True), source="spm")
    golden = SPM["reachable"]
    for text, theirs in zip(REACHED[:2], golden["ids"], strict=False):
        assert {1, 2} & set(theirs[1:])
        ours = tokenizer.encode(text, add_special=False)
        assert not {0, 1, 2, 3} & set(ours)
        assert tokenizer.decode(ours) == f" {text}"
    for text, plain, special in zip(REACHED, golden["ids"], golden["ids_special"], strict=True):
        # With parsing on, what is cut out is the same; only the rest of the text may differ.
        if special is not None:
            assert tokenizer.encode(text, parse_special=True) == special != plain


def test_pairs_of_llama_cpps_own_vocabularies(request):
    if request.config.getoption("--offline") and not vocabularies.cached_folder().is_dir():
        pytest.skip("--offline, and llama.cpp's vocabularies are not in the cache")
    # In a process of its own: 14 vocabularies of up to 262,144 pieces leave half a gigabyte behind.
    folder = vocabularies.vocabulary_folder()
    done = subprocess.run(
        [sys.executable, "-c", _CHECK_PAIRS, folder, *vocabularies.NAMES], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    wrong = {name: found for name, found in json.loads(done.stdout).items() if found["wrong"]}
    assert wrong == {}
    counts = {name: found["pairs"] for name, found in json.loads(done.stdout).items()}
    assert set(counts) == set(vocabularies.NAMES) and min(counts.values()) >= 46


_CHECK_PAIRS = """
import gc, json, pathlib, sys
from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.tokenizer import build_tokenizer

folder, result = pathlib.Path(sys.argv[1]), {}
for name in sys.argv[2:]:
    path = folder / f"ggml-vocab-{name}.gguf"
    with open_gguf(path) as file:
        tokenizer = build_tokenizer(file.metadata, source=path.name)
    texts = pathlib.Path(f"{path}.inp").read_bytes().split(b"\\n__ggml_vocab_test__\\n")
    lines = pathlib.Path(f"{path}.out").read_text().splitlines()
    pairs = [(text, [*map(int, line.split())]) for text, line in zip(texts, lines)]
    wrong = [text.decode() for text, ids in pairs if tokenizer.encode(text, add_special=False) != ids]
    result[name] = {"pairs": len(pairs), "wrong": wrong}
print(json.dumps(result))
"""
