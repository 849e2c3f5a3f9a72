"""A small SentencePiece vocabulary with everything that llama.cpp treats specially."""

from __future__ import annotations

import random
from typing import Any

SPM_TEXTS = (
    "", " ", "Hello world", " Hello  world ", "hello\nworld\n", "ab abc abcd", "the three thieves",
    "x  y   z    w", "Київ", "日本", "🚀 e\u0301", "▁ ▁▁", "<user>a<user> b", "a<table>b", "a <s> b</s>",
    "<unk>", "<0x41>",
    "unused piece", "the<mask>the", "no\u00a0break", "\x00\x01", "a\tb\r\nc",
)  # fmt: skip
REACHED = ("x</s>", "<s>", "<unk>")
"""Texts that are a special token's name, in a vocabulary whose pieces build up to it."""


def spm_vocabulary(*, reachable: bool = False, **changes: Any) -> dict[str, Any]:
    """Metadata of a vocabulary for SPM_TEXTS.

    Byte tokens, single characters, pieces of neighbours with scores in random
    order, user-defined tokens (one of real spaces), an unused piece. Deterministic.

    Args:
      reachable: Add pieces that merge into the special tokens' texts.
      changes: Other values of `tokenizer.ggml.*`; None leaves a key out.
    """
    rng = random.Random(1)
    pieces = {"<unk>": 2, "<s>": 3, "</s>": 3, "<mask>": 3, **{f"<0x{byte:02X}>": 6 for byte in range(256)}}
    pieces |= {"<user>": 4, "<table>": 4, "  ": 4, "\t": 4, "unus": 5}
    words = sorted({word for text in SPM_TEXTS for word in text.split() if word.isascii() and word.isalpha()})
    for word in (*words, "un", "us"):
        spaced = f"▁{word}"
        for start in range(len(spaced)):
            for stop in range(start + 1, min(len(spaced), start + 4) + 1):
                pieces.setdefault(spaced[start:stop], 1)
    pieces |= dict.fromkeys(["▁", "К", "и", "▁▁▁", "<", ">", "/"], 1)
    if reachable:
        pieces |= dict.fromkeys(["s", "</", "s>", "<s", "u", "n", "k", "un", "unk", "<unk", "k>"], 1)
    metadata: dict[str, Any] = {
        "model": "llama",
        "pre": "default",
        "tokens": list(pieces),
        "token_type": list(pieces.values()),
        # Few values, so that ties are common.
        "scores": [float(-rng.randint(1, 30)) if kind in (1, 5) else 0.0 for kind in pieces.values()],
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}
