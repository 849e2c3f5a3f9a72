"""Records what llama.cpp's samplers keep of some logits, for tests/unit/test_sampling.py.

    python tools/update_sampling_golden.py

Needs llama-cpp-python (extra `control`). Writes tests/golden/sampling.json.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

TARGET = Path(__file__).resolve().parents[1] / "tests" / "golden" / "sampling.json"
VOCABULARY = 300
SEEN = [3, 5, 8, 13, 21, 34, 55, 89, 144, 233]
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 40},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 500},
    {"temperature": 1.3, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 0.001},
    {"temperature": 0.8, "min_p": 0.05},
    {"temperature": 2.0, "min_p": 1.0},
    {"temperature": 1.0, "repetition_penalty": 1.3},
    {"temperature": 1.0, "repetition_penalty": 0.8},
    {"temperature": 0.6, "top_k": 50, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.1},
    {"temperature": 1.0, "top_k": 7, "top_p": 0.99, "min_p": 0.2},
]


def make_logits(seed: int) -> np.ndarray:
    """float32 [300], peaked like a model's."""
    return np.random.RandomState(seed).normal(-3, 2.5, VOCABULARY).astype(np.float32)


def llama_keeps(logits: np.ndarray, settings: dict[str, Any]) -> dict[str, float]:
    """Tokens that llama.cpp's chain keeps, with their probabilities; its default order."""
    data = (llama_cpp.llama_token_data * len(logits))(*((i, float(x), 0.0) for i, x in enumerate(logits)))
    array = llama_cpp.llama_token_data_array(data=data, size=len(logits), selected=-1, sorted=False)
    penalties = llama_cpp.llama_sampler_init_penalties(
        VOCABULARY, len(SEEN), settings.get("repetition_penalty", 1.0), 0.0, 0.0
    )
    for token in SEEN:
        llama_cpp.llama_sampler_accept(penalties, token)
    samplers = [penalties]
    if settings.get("top_k"):
        samplers.append(llama_cpp.llama_sampler_init_top_k(settings["top_k"]))
    samplers.append(llama_cpp.llama_sampler_init_top_p(settings.get("top_p", 1.0), 1))
    samplers.append(llama_cpp.llama_sampler_init_min_p(settings.get("min_p", 0.0), 1))
    samplers.append(llama_cpp.llama_sampler_init_temp(settings["temperature"]))
    for sampler in samplers:
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
    kept = {array.data[i].id: array.data[i].logit for i in range(array.size)}
    top = max(kept.values())
    # The rest of the process is not llama.cpp's: probabilities in float64 of the logits that are left.
    weights = {token: float(np.exp(np.float64(x) - top)) for token, x in kept.items()}
    total = sum(weights.values())
    return {str(token): weights[token] / total for token in sorted(weights)}


def _lines(golden: dict[str, Any]) -> str:
    """JSON with a line a case."""
    head = json.dumps({**golden, "cases": []}, indent=1)
    cases = ",\n".join("  " + json.dumps(case) for case in golden["cases"])
    return head.replace('"cases": []', f'"cases": [\n{cases}\n ]') + "\n"


def main() -> None:
    """Writes the golden."""
    cases = [
        {"logits_seed": seed, "settings": settings, "kept": llama_keeps(make_logits(seed), settings)}
        for seed in (1, 2)
        for settings in SETTINGS
    ]
    golden = {
        "engine": "llama.cpp samplers through llama-cpp-python",
        "version": llama_cpp.__version__,
        "tool": "tools/update_sampling_golden.py",
        "vocabulary": VOCABULARY,
        "seen": SEEN,
        "cases": cases,
    }
    TARGET.write_text(_lines(golden))


if __name__ == "__main__":
    main()
