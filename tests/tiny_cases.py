"""The TINY models that other engines have evaluated, and the tokens that they evaluated."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np

from tests.tiny import Tiny, write_tiny
from tests.tiny_rope import TinyRope

LINEAR = TinyRope("linear", 4.0)
YARN = TinyRope("yarn", 4.0, 64)
LLAMA3 = TinyRope("llama3", 8.0, 32)
# One divisor for each of the 16 frequencies of a head of 32.
_SHORT = tuple(round(1 + 0.05 * i, 2) for i in range(16))
_LONG = tuple(round(1 + 0.01 * i**2, 2) for i in range(16))
LONGROPE = TinyRope("longrope", original=32, short=_SHORT, long=_LONG)

_QWEN3 = dict(arch="qwen3", rope_base=1e6, norm_epsilon=1e-6)
# The sixth of seven layers sees all keys; the others see 8, less than a page.
_GEMMA3 = dict(arch="gemma3", layers=7, rope_base=1e6, norm_epsilon=1e-6, window=8)
_PHI3 = dict(arch="phi3", tied=False)


def _tiny(family: dict, **sizes) -> Tiny:
    return Tiny(**{"context": 64, **family, **sizes})


# Peaked attention amplifies rounding: most such models differ from float64 by about 1e-4 in float32, whoever
# evaluates them. These seeds are among the quietest of 0 … 199: eight numpy evaluations in float32, each
# adding up in another order, stay within 5e-5 of float64 (tools/find_quiet_seed.py).
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
    # ---- scaling, for each family
    "llama-linear": Tiny(context=64, rope=LINEAR, gain=3.0, seed=49),
    "llama-yarn": Tiny(context=64, rope=YARN, gain=3.0, seed=10),
    # The same scaling in a file that declares the extended window, over 256 tokens.
    "llama-yarn-256": Tiny(context=256, rope=YARN, gain=1.5, seed=48),
    # 1.3 times the magnitude that YaRN has by itself.
    "llama-yarn-attn-factor": Tiny(
        context=256,
        rope=TinyRope("yarn", 4.0, 64, attention_factor=1.3 * (1 + 0.1 * math.log(4.0))),
        gain=3.0,
        seed=73,
    ),
    "llama-yarn-mscale": Tiny(
        context=64, rope=TinyRope("yarn", 4.0, 64, mscale=2.0, mscale_all_dim=0.5), gain=3.0, seed=47
    ),
    "llama-yarn-betas": Tiny(
        context=64, rope=TinyRope("yarn", 4.0, 64, beta_fast=8.0, beta_slow=2.0), gain=3.0, seed=56
    ),
    "llama-llama3": Tiny(context=64, rope=LLAMA3, gain=3.0, seed=16),
    "llama-longrope": Tiny(context=128, rope=LONGROPE, gain=3.0, seed=69),
    "mistral-window": Tiny(context=64, window=12, gain=3.0, seed=22),
    "mistral-window-yarn": Tiny(context=64, window=12, rope=YARN, gain=3.0, seed=16),
    "qwen2-linear": Tiny("qwen2", context=64, rope_base=1e6, norm_epsilon=1e-6, rope=LINEAR, seed=76),
    "qwen2-yarn": Tiny("qwen2", context=64, rope_base=1e6, norm_epsilon=1e-6, rope=YARN, seed=48),
    "qwen2-llama3": Tiny("qwen2", context=64, rope_base=1e6, norm_epsilon=1e-6, rope=LLAMA3, seed=8),
    "qwen2-longrope": Tiny("qwen2", context=128, rope_base=1e6, norm_epsilon=1e-6, rope=LONGROPE, seed=21),
    # ---- qwen3: heads of 32, not of 64 / 4
    "qwen3-tied": _tiny(_QWEN3),
    "qwen3-untied": _tiny(_QWEN3, tied=False),
    "qwen3-linear": _tiny(_QWEN3, rope=LINEAR),
    "qwen3-yarn": _tiny(_QWEN3, rope=YARN),
    "qwen3-llama3": _tiny(_QWEN3, rope=LLAMA3),
    "qwen3-longrope": _tiny(_QWEN3, context=128, rope=LONGROPE),
    # ---- gemma3: scaling is of full layers only
    "gemma3-tied": _tiny(_GEMMA3),
    "gemma3-untied": _tiny(_GEMMA3, tied=False),
    # Windows that end within pages, and a base of the sliding layers that is the file's.
    "gemma3-window-20": _tiny(_GEMMA3, layers=4, period=3, window=20, local_rope_base=1000.0),
    "gemma3-linear": _tiny(_GEMMA3, rope=LINEAR),
    "gemma3-yarn": _tiny(_GEMMA3, rope=YARN),
    "gemma3-llama3": _tiny(_GEMMA3, rope=LLAMA3),
    "gemma3-longrope": _tiny(_GEMMA3, context=128, rope=LONGROPE),
    # ---- phi3: default and longrope are all it has
    "phi3": _tiny(_PHI3, gain=3.0, seed=30),
    "phi3-window-partial-rotary": _tiny(
        _PHI3, width=192, head_size=48, rotary_size=32, window=12, gain=3.0, seed=56
    ),
    "phi3-longrope": _tiny(_PHI3, context=128, rope=LONGROPE, gain=3.0, seed=89),
    # The whole context fits the original window: the short divisors.
    "phi3-longrope-short": _tiny(
        _PHI3,
        context=1024,
        rope=TinyRope("longrope", original=256, short=_SHORT, long=_LONG),
        gain=3.0,
        seed=3,
    ),
}

_RANDOM_IDS: list[int] = np.random.RandomState(40).randint(0, 288, 232).tolist()
TOKENS: list[int] = _RANDOM_IDS[:40]
"""The prompt: more than one step of 32 rows and more than one page of 16 positions."""
NEW_TOKENS = 24
"""Greedy tokens after the prompt; with it they fill a context of 64."""

FULL = ("llama-tied", "qwen2-tied", "gemma3-tied")
"""Cases whose logits are recorded at every position of the prompt."""
LONG = ("llama-yarn-256",)
"""Cases with a prompt of 232 tokens, which with the new tokens fill a context of 256."""


def tokens(name: str) -> list[int]:
    """The prompt of a case."""
    return _RANDOM_IDS if name in LONG else TOKENS


def context(name: str) -> int:
    """Positions that a session of a case has; longrope chooses its divisors by them."""
    return 256 if name in LONG or name == "phi3-longrope-short" else 64


def positions(name: str) -> list[int]:
    """Positions of a case whose logits are recorded: both sides of edges of pages and steps."""
    if name in FULL:
        return list(range(len(TOKENS)))
    if name in LONG:
        return [31, 32, 63, 64, 127, 128, 231]
    return [0, 1, 15, 16, 31, 32, 39] if CASES[name].rope is None else [15, 32, 39]


def write_case(path: Path, name: str, **options) -> str:
    """Writes the file of a case; `options` are those of `write_tiny`. Returns its SHA-256 in hex."""
    write_tiny(path, **vars(CASES[name]), **options)
    return hashlib.sha256(path.read_bytes()).hexdigest()
