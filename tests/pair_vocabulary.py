"""A small byte-pair vocabulary in which nearly every cut between words changes the ids."""

from __future__ import annotations

from typing import Any

from synapse_jax.io.byte_pieces import BYTE_OF

_CHARACTER = {byte: character for character, byte in BYTE_OF.items()}
WHOLE_WORDS = ("Hello", " world", " is", "'ll")
"""Words with a token that no merge reaches: found only where merges are ignored for whole words."""
USER_DEFINED = ("<user>", "<user>x", "\t\t")
CONTROL = ("<|begin|>", "<|im_start|>", "<|im_end|>")


def pair_vocabulary(texts: list[str], pre: str | None) -> dict[str, Any]:
    """Metadata of a vocabulary made for some texts.

    All 256 bytes, a merge for every two neighbouring bytes of the texts (in
    sorted order, so rank and length are unrelated), whole words, user-defined
    and control tokens. Deterministic: the same texts give the same ids.
    """
    words = [bytes([byte]) for byte in range(256)]
    pairs = sorted({(a, b) for text in texts for a, b in zip(text.encode(), text.encode()[1:], strict=False)})
    pieces = ["".join(_CHARACTER[byte] for byte in word) for word in words]
    merges = [f"{_CHARACTER[a]} {_CHARACTER[b]}" for a, b in pairs]
    pieces += [merge.replace(" ", "") for merge in merges]
    pieces += ["".join(_CHARACTER[byte] for byte in word.encode()) for word in WHOLE_WORDS]
    types = [1] * len(pieces) + [4] * len(USER_DEFINED) + [3] * len(CONTROL)
    pieces += [*USER_DEFINED, *CONTROL]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": pieces.index("<|begin|>"),
        "tokenizer.ggml.eos_token_id": pieces.index("<|im_end|>"),
    }
    if pre is not None:
        metadata["tokenizer.ggml.pre"] = pre
    return metadata
