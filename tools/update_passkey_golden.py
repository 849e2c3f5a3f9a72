"""Records how llama.cpp cuts pass-key prompts into tokens, in tests/golden/passkey.json.

    python tools/update_passkey_golden.py

Needs the extra `control` (llama-cpp-python 0.3.36). The text of a prompt comes from this engine, its tokens
from llama.cpp, for both catalog models and every form.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import synapse_jax as sj  # noqa: E402
from synapse_jax.evals.passkey.fixture import Fixture  # noqa: E402
from synapse_jax.evals.passkey.form import FORMS  # noqa: E402
from synapse_jax.io.catalog import CATALOG, PackageFile, resolve_model  # noqa: E402
from tools.update_tokenizer_golden import LlamaVocabulary, digest  # noqa: E402

LENGTH, DEPTH, ANSWER_TOKENS, SEED = 256, 0.5, 16, 0


def main() -> None:
    models = {}
    for name, entry in CATALOG.items():
        if isinstance(entry.file, PackageFile):  # too small to answer
            continue
        path = resolve_model(name)
        with sj.load(path) as model:
            vocabulary, prompts = LlamaVocabulary(path), []
            for form in FORMS:
                prompt = Fixture(form, model.tokenizer, name).prompt(LENGTH, DEPTH, ANSWER_TOKENS, SEED)
                text = model.tokenizer.decode(prompt.ids, special=False)
                ids = vocabulary.encode(text, special=False)
                prompts.append({"form": form, "key": prompt.key, "text": text, "ids": ids})
            vocabulary.close()
        models[name] = {"sha256": digest(path), "prompts": prompts}
    golden = {
        "provenance": {
            "engine": "llama.cpp of llama-cpp-python",
            "version": llama_cpp.__version__,
            "tool": "tools/update_passkey_golden.py",
        },
        "asked": {"length": LENGTH, "depth": DEPTH, "answer_tokens": ANSWER_TOKENS, "seed": SEED},
        "models": models,
    }
    rows = json.dumps(golden, separators=(",", ":")).replace('{"form"', '\n{"form"') + "\n"
    (ROOT / "tests" / "golden" / "passkey.json").write_text(rows, encoding="ascii")


if __name__ == "__main__":
    main()
