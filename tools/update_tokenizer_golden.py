"""Records what llama.cpp's tokenizer does with awkward strings, in tests/golden/.

    python tools/update_tokenizer_golden.py --smollm2 SMOLLM2.gguf --gemma GEMMA3-270M.gguf

Needs the extra `control` (llama-cpp-python 0.3.36). Writes tokenizer_smollm2.json
(awkward strings on a real vocabulary), tokenizer_pairs.json.gz (one small
vocabulary for every name of `tokenizer.ggml.pre`) and tokenizer_random.json.gz (500
random strings, some of them not UTF-8, on both models). Ids come with and without
special-token parsing.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import random
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.pre_tokenizers import PRE_TOKENIZERS  # noqa: E402
from tests.pair_vocabulary import pair_vocabulary  # noqa: E402
from tests.random_texts import AWKWARD, random_text  # noqa: E402
from tests.spm_vocabulary import REACHED, SPM_TEXTS, spm_vocabulary  # noqa: E402

SEED, COUNT = 20261129, 500
SPM_CASES: dict[str, dict] = {
    "plain": {},
    "no prefix": {"add_space_prefix": False},
    "no bos": {"add_bos_token": False, "add_eos_token": True},
    "reachable": {"reachable": True},
}
TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "a", "Hello world", "Hello, world!", " Hello",
    "Hello ", "Hello  ", "The capital of Ukraine is", "1234567 12:34", "3.14159265, -42 and 1,000,000",
    "in 2026 I had 007 of 12345", "x1y22z333 4444", "½ ² Ⅷ ٣٤٥ १२३ 一二三 𝟙𝟚",
    "I'm you're he'll they've we'd it's don't", "I'M YOU'RE HE'LL THEY'VE WE'D IT'S DON'T",
    "'S 'Tis 'LL 'lL o'clock 'rE 'Ve ''s '", "it’s “quoted” — dashed…",
    "'ſ is a long s", "'ſtop IT'ſ",
    "\u212a '\u212a",
    "e\u0301 n\u0303 a\u0308\u0332 o\u0302\u0301",
    "Việt Nam, Ångström, naïve, Straße", "हिन्दी में नमस्ते",
    "ภาษาไทยไม่มีช่องว่าง", "العربية مع أرقام ١٢٣", "עברית", "日本語のテキスト、漢字とかな。", "한국어 텍스트",
    "Київ — столиця України", "🚀", "👩‍👩‍👧‍👦 family", "🇺🇦🇯🇵 ✈️ 👍🏽", "a\u200db\u200cc\ufeffd",
    "\ufeffwith a mark", "line\u2028sep\u2029par\u0085nel", "no\u00a0break\u3000wide\u2003em\u202fnarrow",
    "tab\tbetween\t\ttabs\t", "a\r\nb\r\n\r\nc\rd", "a" + " " * 17 + "b" + " " * 64 + "c", " " * 200,
    "\n" * 30 + "x", " \n \n  \n", "x \n\n  y\n ", "\t \t x", "a" * 300,
    "nul\x00inside \x01\x02\x03 \x0b\x0c \x1f \x7f", "!!!???...,,,;;;", "---===+++***///",
    "$100 <b>&amp;</b> {x: [1, 2]}", "def f(x):\n    return x ** 2  # square\n",
    "https://example.org/a?b=c&d=%20#e", "CamelCase snake_case SCREAMING_CASE",
    "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|>", "<|im_start|", "<user>x<user><user>xx",
    "a <|begin|> b", "!\n!\n\n! \n", "Ġ Ċ ▁ Ã",
    "\U00010d40\U00010d4a\U000105c0 \u1c89 \U00011bf0",
    "\U0010ffff\ue000\u0378", "ǅ ʰ ª º Ⅻ ⓐ",
    "a  123456 b 1234567  12345678 x", "1,234,567.89 12345678901234",
    "<sentinel:12> IMGIMGABIZ  x", "foo   \n\n  bar  ",
    "12a345b6789 ١٢٣٤٥٦٧", "don'T I'D 're", " 's x's", "it'rezz 'vezz", "x/y/\nz", "…。，、।۔،", "/\r\n//\n",
]  # fmt: skip


@llama_cpp.llama_log_callback
def _silent(*_: object) -> None:
    pass


class LlamaVocabulary:
    """A file's tokenizer in llama.cpp; no weights are read."""

    def __init__(self, path: Path):
        llama_cpp.llama_log_set(_silent, None)
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise SystemExit(f"llama.cpp does not load {path}")
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)

    def encode(self, text: str | bytes, *, special: bool) -> list[int]:
        """Ids with BOS and EOS where the file says so."""
        data = text if isinstance(text, bytes) else text.encode()
        room = len(data) + 16
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocabulary, data, len(data), ids, room, True, special)
        assert count >= 0
        return ids[:count]

    def encode_all(self, texts: list) -> dict[str, list]:
        """Ids of each text; with special tokens parsed, None where that changes nothing."""
        plain = [self.encode(text, special=False) for text in texts]
        special = [self.encode(text, special=True) for text in texts]
        changed = [b if a != b else None for a, b in zip(plain, special, strict=True)]
        return {"ids": plain, "ids_special": changed}

    def close(self) -> None:
        llama_cpp.llama_model_free(self._model)


def write_vocabulary(path: Path, metadata: dict) -> None:
    """A GGUF file with a tokenizer and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(metadata["tokenizer.ggml.model"])
    if "tokenizer.ggml.pre" in metadata:
        writer.add_tokenizer_pre(metadata["tokenizer.ggml.pre"])
    writer.add_token_list(metadata["tokenizer.ggml.tokens"])
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    if "tokenizer.ggml.scores" in metadata:
        writer.add_token_scores(metadata["tokenizer.ggml.scores"])
    if "tokenizer.ggml.merges" in metadata:
        writer.add_token_merges(metadata["tokenizer.ggml.merges"])
    for key in ("add_space_prefix", "add_bos_token", "add_eos_token"):
        if f"tokenizer.ggml.{key}" in metadata:
            writer.add_bool(f"tokenizer.ggml.{key}", metadata[f"tokenizer.ggml.{key}"])
    writer.add_bos_token_id(metadata["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(metadata["tokenizer.ggml.eos_token_id"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save(name: str, golden: dict) -> None:
    """Writes a golden file, one list of ids a line; `.gz` compressed, the same bytes every time."""
    path = ROOT / "tests" / "golden" / name
    rows = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    rows = rows.replace('{"text"', '\n{"text"').replace("[[", "[\n[").replace("],[", "],\n[") + "\n"
    path.write_bytes(gzip.compress(rows.encode(), 9, mtime=0) if name.endswith(".gz") else rows.encode())
    print(f"wrote {path.relative_to(ROOT)}, {path.stat().st_size} bytes")


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--smollm2", type=Path, required=True)
    parser.add_argument("--gemma", type=Path, required=True)
    flags = parser.parse_args()
    provenance = {"engine": "llama.cpp of llama-cpp-python", "version": llama_cpp.__version__}
    models = {"smollm2": flags.smollm2, "gemma-3-270m": flags.gemma}
    loaded = {name: LlamaVocabulary(path) for name, path in models.items()}
    digests = {name: digest(path) for name, path in models.items()}

    smol = loaded["smollm2"]
    cases = [
        {
            "text": text,
            "ids": smol.encode(text, special=False),
            "ids_special": smol.encode(text, special=True),
        }
        for text in TEXTS
    ]
    save(
        "tokenizer_smollm2.json",
        {"provenance": {**provenance, "model_sha256": digests["smollm2"]}, "cases": cases},
    )

    rng = random.Random(SEED)
    texts = [*AWKWARD, *(random_text(rng) for _ in range(COUNT))]
    save(
        "tokenizer_random.json.gz",
        {
            "provenance": provenance,
            "texts": [base64.b64encode(text).decode() for text in texts],
            "models": {
                name: {"sha256": digests[name], **vocabulary.encode_all(texts)}
                for name, vocabulary in loaded.items()
            },
        },
    )

    sentence_pieces = {}
    for name, changes in SPM_CASES.items():
        texts = [text.encode() for text in SPM_TEXTS] + [*AWKWARD]
        texts = [text.encode() for text in REACHED] if changes.get("reachable") else texts
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vocabulary.gguf"
            write_vocabulary(path, spm_vocabulary(**changes))
            vocabulary = LlamaVocabulary(path)
            sentence_pieces[name] = vocabulary.encode_all(texts)
            vocabulary.close()
    save("tokenizer_spm.json", {"provenance": provenance, "vocabularies": sentence_pieces})

    # Names that llama.cpp treats alike share a result, which is recorded once.
    results: list[dict] = []
    names: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for pre in (*PRE_TOKENIZERS, "default", None):
            path = Path(folder) / "vocabulary.gguf"
            write_vocabulary(path, pair_vocabulary(TEXTS, pre))
            vocabulary = LlamaVocabulary(path)
            result = vocabulary.encode_all(TEXTS)
            vocabulary.close()
            if result not in results:
                results.append(result)
            names[pre or "missing"] = results.index(result)
    save(
        "tokenizer_pairs.json.gz",
        {"provenance": provenance, "texts": TEXTS, "names": names, "results": results},
    )


if __name__ == "__main__":
    main()
