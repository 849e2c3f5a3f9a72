"""Records llama.cpp's perplexities of the parity text, in tests/golden/parity.json.

    python tools/update_parity_golden.py --llama-cpp FOLDER [--keep FOLDER] [--threads N]

FOLDER holds built llama-perplexity, llama-quantize and llama-tokenize. The models' weights are
dequantized to F32 files first: llama.cpp's own quantized paths quantize activations. The runs are those
of tools/parity_runs.py. --keep keeps the programs' raw output, and a second run takes what is there
instead of computing it again. The per-position figures come through the binding (package
llama-cpp-python, extra `control`).
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.io.catalog import resolve_model  # noqa: E402
from synapse_jax.spec.digest import sha256_tokens  # noqa: E402
from tools.corpus import corpus_path  # noqa: E402
from tools.parity_runs import GEMMA, GOLDEN, RUNS, SMOL, ParityRun  # noqa: E402

POSITIONS = {SMOL: 512, GEMMA: 0}
"""Tokens of the text whose NLL is recorded, by model. Not of Gemma: llama.cpp's gelu goes through a table in
half precision, which moves single NLLs by 0.02 (tools/update_gemma_golden.py has a build without it)."""
FLAGS = ["-ctk", "f32", "-ctv", "f32", "-fa", "off"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = arguments.keep or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        record(arguments.llama_cpp, work, arguments.threads)


def record(programs: Path, work: Path, threads: int) -> None:
    text = corpus_path()
    golden = {
        "provenance": {
            "engine": "llama.cpp " + version(programs),
            "weights": "dequantized to F32 by llama-quantize",
            "text": {"file": text.name, "sha256": digest(text)},
            "flags": FLAGS,
            "tool": "tools/update_parity_golden.py",
        },
        "models": {name: model(programs, name, text, work, threads) for name in POSITIONS},
        "runs": {
            run.name: {
                "flags": run.llama_flags,
                "running_perplexity": running_perplexity(programs, run, text, work, threads),
            }
            for run in RUNS
        },
    }
    GOLDEN.write_text(json.dumps(golden, indent=None, separators=(",", ":")) + "\n")
    print(f"wrote {GOLDEN.relative_to(ROOT)}")


def model(programs: Path, name: str, text: Path, work: Path, threads: int) -> dict[str, Any]:
    """What is recorded of a model: its file, its tokens of the text, NLL of the first positions."""
    file = resolve_model(name)
    ids, count = tokenize(programs, file, text), POSITIONS[name]
    return {
        "file": file.name,
        "sha256": digest(file),
        "tokens": {"count": len(ids), "sha256": sha256_tokens(ids)},
        "first_nll": position_nll(f32_file(programs, name, work), ids[:count], threads) if count else [],
    }


def f32_file(programs: Path, name: str, work: Path) -> Path:
    """The model's weights as F32; its file is made at the first use."""
    target = work / f"{name}-f32.gguf"
    if not target.exists():
        part = target.with_suffix(".part")
        arguments = ["--allow-requantize", resolve_model(name), part, "F32"]
        subprocess.run([programs / "llama-quantize", *arguments], check=True, capture_output=True)
        part.rename(target)
    return target


def tokenize(programs: Path, model: Path, text: Path) -> list[int]:
    """Token IDs of the text without its last newline, as llama-perplexity sees it."""
    data = text.read_bytes().removesuffix(b"\n")
    done = subprocess.run(
        [programs / "llama-tokenize", "-m", model, "--stdin", "--ids", "--no-parse-special"],
        input=data,
        capture_output=True,
        check=True,
    )
    return ast.literal_eval(done.stdout.decode().splitlines()[-1])


def running_perplexity(programs: Path, run: ParityRun, text: Path, work: Path, threads: int) -> list[float]:
    raw = work / f"perplexity-{run.name}.txt"
    if not raw.exists():
        print(f"llama-perplexity, {run.name} …", flush=True)
        arguments = ["-m", f32_file(programs, run.model, work), "-f", text, "-t", threads, *run.llama_flags]
        done = subprocess.run(
            [programs / "llama-perplexity", *map(str, arguments), *FLAGS], capture_output=True, check=True
        )
        part = raw.with_suffix(".part")
        part.write_bytes(done.stdout + done.stderr)
        part.rename(raw)
    found = re.findall(r"\[(\d+)\]([0-9.]+),", raw.read_text(errors="replace"))
    if [int(index) for index, _ in found] != list(range(1, len(found) + 1)):
        sys.exit(f"{raw}: the chunks are not numbered from 1 without gaps")
    return [float(value) for _, value in found]


def position_nll(model: Path, ids: list[int], threads: int) -> list[float]:
    """NLL of positions 1 … n − 1 of one chunk, from the binding's logits, in float64."""
    import llama_cpp

    llm = llama_cpp.Llama(
        str(model),
        n_ctx=len(ids),
        n_batch=len(ids),
        n_threads=threads,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    llm.eval(ids)
    logits = np.asarray(llm.scores[: len(ids)], np.float64)
    top = logits.max(-1, keepdims=True)
    log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
    return [round(float(log_sum[i - 1] - logits[i - 1, ids[i]]), 7) for i in range(1, len(ids))]


def version(programs: Path) -> str:
    done = subprocess.run([programs / "llama-perplexity", "--version"], capture_output=True, check=True)
    return (done.stdout + done.stderr).decode().splitlines()[0].removeprefix("version: ")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
