"""Records what llama.cpp's tokenizer does with awkward strings, in tests/golden/.

    python tools/update_tokenizer_golden.py --llama-tokenize PATH --model SMOLLM2.gguf [--vocabularies FOLDER]

Needs a built `llama-tokenize`. Writes tokenizer_smollm2.json (the real
vocabulary) and tokenizer_pairs.json (one small vocabulary per pre-tokenizer).
With --vocabularies (llama.cpp's own `models` folder) it also compares this
project's tokenizer with llama-tokenize on those larger files, which are not kept here.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.tokenizer import build_tokenizer  # noqa: E402
from tests.pair_vocabulary import pair_vocabulary  # noqa: E402

PRE_TOKENIZERS = ("smollm", "starcoder", "gpt-2", "qwen2", "llama-bpe", "default", None)
TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "a", "Hello world", "Hello, world!", " Hello",
    "Hello ", "Hello  ", "The capital of Ukraine is", "1234567 12:34", "3.14159265, -42 and 1,000,000",
    "in 2026 I had 007 of 12345", "x1y22z333 4444", "½ ² Ⅷ ٣٤٥ १२३ 一二三 𝟙𝟚",
    "I'm you're he'll they've we'd it's don't", "I'M YOU'RE HE'LL THEY'VE WE'D IT'S DON'T",
    "'S 'Tis 'LL 'lL o'clock 'rE 'Ve ''s '", "it’s “quoted” — dashed…", "'ſ is a long s", "'ſtop IT'ſ",
    "\u212a '\u212a",
    "e\u0301 n\u0303 a\u0308\u0332 o\u0302\u0301", "Việt Nam, Ångström, naïve, Straße", "हिन्दी में नमस्ते",
    "ภาษาไทยไม่มีช่องว่าง", "العربية مع أرقام ١٢٣", "עברית", "日本語のテキスト、漢字とかな。", "한국어 텍스트",
    "Київ — столиця України", "🚀", "👩‍👩‍👧‍👦 family", "🇺🇦🇯🇵 ✈️ 👍🏽", "a\u200db\u200cc\ufeffd",
    "\ufeffwith a mark", "line\u2028sep\u2029par\u0085nel", "no\u00a0break\u3000wide\u2003em\u202fnarrow",
    "tab\tbetween\t\ttabs\t", "a\r\nb\r\n\r\nc\rd", "a" + " " * 17 + "b" + " " * 64 + "c", " " * 200,
    "\n" * 30 + "x", " \n \n  \n", "x \n\n  y\n ", "\t \t x", "a" * 300,
    "nul\x00inside \x01\x02\x03 \x0b\x0c \x1f \x7f", "!!!???...,,,;;;", "---===+++***///",
    "$100 <b>&amp;</b> {x: [1, 2]}", "def f(x):\n    return x ** 2  # square\n",
    "https://example.org/a?b=c&d=%20#e", "CamelCase snake_case SCREAMING_CASE",
    "<|im_start|>user\nHi<|im_end|>\n", "<|endoftext|>", "<|im_start|", "<user>x<user><user>xx",
    "a <|begin|> b", "!\n!\n\n! \n", "Ġ Ċ ▁ Ã", "\U00010d40\U00010d4a\U000105c0 \u1c89 \U00011bf0",
    "\U0010ffff\ue000\u0378", "ǅ ʰ ª º Ⅻ ⓐ",
]  # fmt: skip


class LlamaTokenize:
    """llama.cpp's command line tokenizer."""

    def __init__(self, program: Path):
        self._program = program

    def __call__(self, model: Path, text: str, *, special: bool) -> list[int]:
        arguments = [self._program, "-m", model, "--stdin", "--ids"]
        arguments += [] if special else ["--no-parse-special"]
        done = subprocess.run(arguments, input=text.encode(), capture_output=True, check=True)
        return ast.literal_eval(done.stdout.decode().splitlines()[-1])

    def version(self) -> str:
        done = subprocess.run([self._program, "--version"], capture_output=True, check=True)
        return (done.stdout + done.stderr).decode().splitlines()[0].removeprefix("version: ")


def read_metadata(path: Path) -> dict:
    """The tokenizer's keys of a GGUF file."""
    fields = gguf.GGUFReader(path).fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.ggml.")}


def write_vocabulary(path: Path, metadata: dict) -> None:
    """A GGUF file with a tokenizer and no tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(metadata["tokenizer.ggml.model"])
    if "tokenizer.ggml.pre" in metadata:
        writer.add_tokenizer_pre(metadata["tokenizer.ggml.pre"])
    writer.add_token_list(metadata["tokenizer.ggml.tokens"])
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    writer.add_token_merges(metadata["tokenizer.ggml.merges"])
    writer.add_bos_token_id(metadata["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(metadata["tokenizer.ggml.eos_token_id"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def record(name: str, golden: dict) -> None:
    """Writes a golden file with one list of ids a line, so that diffs can be read."""
    path = ROOT / "tests" / "golden" / name
    rows = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    path.write_text(rows.replace('{"text"', '\n{"text"').replace("[[", "[\n[").replace("],[", "],\n[") + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


def compare(llama: LlamaTokenize, path: Path) -> int:
    """Differences between this project and llama.cpp on a vocabulary: its recorded pairs and TEXTS."""
    tokenizer = build_tokenizer(read_metadata(path), source=path.name)
    wrong = 0
    recorded, expected = Path(f"{path}.inp"), Path(f"{path}.out")
    if recorded.exists():
        texts = recorded.read_bytes().decode().split("\n__ggml_vocab_test__\n")
        lines = expected.read_text().splitlines()
        wrong += sum(
            tokenizer.encode(text, add_special=False) != [int(index) for index in line.split()]
            for text, line in zip(texts, lines, strict=False)
        )
    for text in TEXTS:
        for special in (False, True):
            ours, theirs = tokenizer.encode(text, parse_special=special), llama(path, text, special=special)
            if ours != theirs:
                wrong += 1
                print(f"  {text!r} special={special}: {ours} here, {theirs} there")
    print(f"{path.name}: {wrong} differences")
    return wrong


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--llama-tokenize", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--vocabularies", type=Path)
    flags = parser.parse_args()
    llama = LlamaTokenize(flags.llama_tokenize)
    if flags.vocabularies:
        names = ("gpt-2", "llama-bpe", "qwen2", "starcoder")
        wrong = [compare(llama, flags.vocabularies / f"ggml-vocab-{name}.gguf") for name in names]
        raise SystemExit(any(wrong))
    cases = []
    for text in TEXTS:
        plain, special = (llama(flags.model, text, special=special) for special in (False, True))
        cases.append({"text": text, "ids": plain, "ids_special": special})
    provenance = {"engine": "llama.cpp llama-tokenize", "version": llama.version()}
    with open(flags.model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    record("tokenizer_smollm2.json", {"provenance": {**provenance, "model_sha256": digest}, "cases": cases})
    pairs = {}
    with tempfile.TemporaryDirectory() as folder:
        for pre in PRE_TOKENIZERS:
            path = Path(folder) / f"{pre}.gguf"
            write_vocabulary(path, pair_vocabulary(TEXTS, pre))
            pairs[pre or "missing"] = {
                "ids": [llama(path, text, special=False) for text in TEXTS],
                "ids_special": [llama(path, text, special=True) for text in TEXTS],
            }
    record("tokenizer_pairs.json", {"provenance": provenance, "texts": TEXTS, "vocabularies": pairs})


if __name__ == "__main__":
    main()
