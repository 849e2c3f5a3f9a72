"""The TINY models that other engines have evaluated, and the tokens that they evaluated."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from tests.tiny import Tiny, write_tiny

# Peaked attention amplifies rounding: most such models differ from float64 by about 1e-4 in float32, whoever
# evaluates them. These seeds are among the quietest of 0 … 199: eight numpy evaluations in float32, each
# adding up in another order, stay within 5e-5 of float64.
CASES: dict[str, Tiny] = {
    "llama-tied": Tiny(context=64, seed=101),
    # The weights of the case above, and an output head of its own.
    "llama-untied": Tiny(context=64, tied=False, seed=101),
    "llama-rope-base": Tiny(context=64, rope_base=1e6, seed=79),
    # Heads that span the width, one key head for all, and an epsilon that shows.
    "llama-one-key-head": Tiny(context=64, head_size=16, kv_heads=1, norm_epsilon=1e-2, seed=18),
    "llama-key-length-48": Tiny(context=64, head_size=48, rope_base=1e5, seed=148),
    "llama-biases": Tiny(context=64, layers=4, qkv_bias=True, norm_epsilon=1e-6, seed=92),
    "llama-partial-rotary": Tiny(context=64, head_size=48, rotary_size=32, seed=173),
    # As phi3, llama.cpp takes partial rotary heads where they span the width.
    "llama-partial-rotary-wide": Tiny(
        context=64, width=192, head_size=48, rotary_size=32, tied=False, rope_base=1e5, seed=186
    ),
    "qwen2-tied": Tiny("qwen2", context=64, rope_base=1e6, norm_epsilon=1e-6, seed=18),
    # G = 1: as many key heads as query heads.
    "qwen2-untied-mha": Tiny(
        "qwen2", context=64, layers=3, kv_heads=4, tied=False, rope_base=1e6, norm_epsilon=1e-6, seed=89
    ),
}

TOKENS: list[int] = np.random.RandomState(40).randint(0, 288, 40).tolist()
"""The prompt: more than one step of 32 rows and more than one page of 16 positions."""
NEW_TOKENS = 24
"""Greedy tokens after the prompt; with it they fill the context."""

FULL = ("llama-tied", "qwen2-tied")
"""Cases whose logits are recorded at every position of the prompt."""
POSITIONS = (0, 1, 15, 16, 31, 32, 39)
"""Positions of the others: both sides of a page's and of a step's edge."""


def positions(name: str) -> list[int]:
    """Positions of a case whose logits are recorded."""
    return list(range(len(TOKENS))) if name in FULL else list(POSITIONS)


def write_case(path: Path, name: str, **options) -> str:
    """Writes the file of a case; `options` are those of `write_tiny`. Returns its SHA-256 in hex."""
    write_tiny(path, **vars(CASES[name]), **options)
    return hashlib.sha256(path.read_bytes()).hexdigest()
