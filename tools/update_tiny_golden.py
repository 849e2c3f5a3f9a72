"""Records what other engines make of the TINY models, in tests/golden/tiny_logits.npz and .json.

    python tools/update_tiny_golden.py [--llama-cpp FOLDER]

Needs transformers, torch (a CPU build) and llama-cpp-python (extra `control`). FOLDER holds another build
of llama.cpp for the binding to use: its libraries and llama-perplexity, which tells its version. For gemma3
it must be one that was built without `GGML_GELU_FP16` (a line of `ggml/src/ggml-cpu/vec.h`): with it gelu is
looked up in a table in half precision, and logits of these models move by 1e-2. Its libraries must find each
other, if need be by LD_LIBRARY_PATH.
Nothing is written unless all engines, and a float64 evaluation in numpy, agree to 1e-4 at every position
and on every greedy token.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.spec.digest import sha256_tokens  # noqa: E402
from tests import oracles  # noqa: E402
from tests.float64_forward import float64_logits  # noqa: E402
from tests.tiny_cases import CASES, LONG, NEW_TOKENS, positions, tokens, write_case  # noqa: E402

TOLERANCE = 1e-4
MARGIN = 1e-3
"""The least distance between the two largest logits where a greedy token is recorded."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=Path)
    folder = parser.parse_args().llama_cpp
    if folder:
        # Read when the binding is imported, which the oracle does when it is first called.
        os.environ["LLAMA_CPP_LIB_PATH"] = str(folder)
    arrays, cases = {}, {}
    with tempfile.TemporaryDirectory() as work:
        for name in CASES:
            arrays |= record(Path(work), name, cases)
    provenance = {"tool": "tools/update_tiny_golden.py", "engines": engines(folder), "dtype": "float32"}
    longest = tokens(LONG[0])
    prompt = {"ids": longest, "sha256": sha256_tokens(longest)}
    golden = ROOT / "tests" / "golden"
    np.savez_compressed(golden / "tiny_logits.npz", **arrays)
    head = json.dumps({"provenance": provenance, "tokens": prompt}, separators=(",", ":"))
    # One case a line, so that diffs can be read.
    rows = [f"{json.dumps(name)}:{json.dumps(case, separators=(',', ':'))}" for name, case in cases.items()]
    text = head[:-1] + ',"cases":{\n' + ",\n".join(rows) + "}}\n"
    (golden / "tiny_logits.json").write_text(text)
    size = sum((golden / f"tiny_logits.{suffix}").stat().st_size for suffix in ("npz", "json"))
    print(f"wrote tests/golden/tiny_logits.npz and .json, {size} bytes")


def record(work: Path, name: str, cases: dict) -> dict[str, np.ndarray]:
    """Evaluates a case with every engine; adds its line to `cases`, returns its arrays."""
    tiny = CASES[name]
    path = work / f"{name}.gguf"
    case = {"sha256": write_case(path, name), "engines": {}}
    model = oracles.transformers_model(tiny)
    greedy = continuation(model, name)
    ids = tokens(name) + greedy
    logits = {"transformers": oracles.transformers_logits(model, ids)}
    case["engines"]["transformers"] = oracles.transformers_class(tiny)
    if oracles.llama_cpp_takes(tiny):
        case["engines"]["llama.cpp"] = "llama.cpp " + tiny.arch
        if tiny.rotary != tiny.head_size and tiny.arch != "phi3":
            oracles.write_phi3(path, tiny)
            case["engines"]["llama.cpp"] = "llama.cpp phi3, the same weights in another file"
        logits["llama.cpp"] = oracles.llama_cpp_logits(path, ids)
    case |= {"positions": positions(name), "greedy": greedy}
    case["largest_difference"] = agree(name, logits | {"float64": float64_logits(tiny, ids)})
    cases[name] = case
    return {f"{name}/{engine}": array[positions(name)] for engine, array in logits.items()}


def continuation(model, name: str) -> list[int]:
    """The greedy tokens after the prompt; no logits come close, so that any engine gives the same."""
    ids = list(tokens(name))
    for _ in range(NEW_TOKENS):
        last = oracles.transformers_logits(model, ids)[-1]
        second, first = np.sort(last)[-2:]
        if first - second < MARGIN:
            sys.exit(f"{name}: the two largest logits at position {len(ids) - 1} are {second} and {first}")
        ids.append(int(np.argmax(last)))
    return ids[-NEW_TOKENS:]


def agree(name: str, logits: dict[str, np.ndarray]) -> dict[str, float]:
    """Checks that all agree on the prompt's logits and on all greedy tokens; largest difference by pair."""
    differences = {}
    for (one, a), (other, b) in itertools.combinations(logits.items(), 2):
        worst = float(np.abs(a - b)[: len(tokens(name))].max())
        if not worst <= TOLERANCE:
            sys.exit(f"{name}: {one} and {other} differ by {worst:.2e}, more than {TOLERANCE}")
        if not np.array_equal(a.argmax(-1), b.argmax(-1)):
            sys.exit(f"{name}: {one} and {other} differ in a greedy token")
        differences[f"{one}, {other}"] = float(f"{worst:.2e}")
    print(name, differences, flush=True)
    return differences


def engines(folder: Path | None) -> dict[str, str]:
    """Versions of what was compared."""
    import llama_cpp
    import torch
    import transformers

    versions = {
        "transformers": f"{transformers.__version__}, torch {torch.__version__}, CPU, eager attention",
        "llama.cpp": f"llama-cpp-python {llama_cpp.__version__}, F32 cache, no flash attention, one thread, "
        "built without GGML_GELU_FP16",
        "float64": f"tests/float64_forward.py, numpy {np.__version__}",
    }
    if folder:
        done = subprocess.run([folder / "llama-perplexity", "--version"], capture_output=True, check=True)
        version = (done.stdout + done.stderr).decode().splitlines()[0].removeprefix("version: ")
        versions["llama.cpp"] += f", llama.cpp {version}"
    return versions


if __name__ == "__main__":
    main()
