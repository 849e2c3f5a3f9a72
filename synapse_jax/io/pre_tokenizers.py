"""How text is cut into words before byte-pair merging, by the name in `tokenizer.ggml.pre`.

The patterns are llama.cpp's (src/llama-vocab.cpp, the `llm_tokenizer_bpe`
constructor, with the hand-written splitters of src/unicode.cpp). They are
applied one after the other, each inside the pieces that the one before left.
"""

from __future__ import annotations

import dataclasses

# llama.cpp's character tables are Unicode 15.1, those of the regex engine are
# newer. Code points that became letters, numbers or punctuation later must not
# count as such, or rare scripts would be cut differently.
_LATER_LETTERS = (
    r"\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D85}\x{10EC2}-\x{10EC4}"
    r"\x{11380}-\x{113D3}\x{11BC0}-\x{11BE0}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}"
    r"\x{1E5D0}-\x{1E5F0}"
)
_LATER_NUMBERS = (
    r"\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{16130}-\x{16139}\x{16D70}-\x{16D79}"
    r"\x{1CCF0}-\x{1CCF9}\x{1E5F1}-\x{1E5FA}"
)
_LATER_PUNCTUATION = (
    r"\x{1B4E}-\x{1B4F}\x{1B7F}\x{10D6E}\x{113D4}-\x{113D8}\x{11BE1}\x{16D6D}-\x{16D6F}\x{1E5FF}"
)
_L = rf"[\p{{L}}&&[^{_LATER_LETTERS}]]"
_N = rf"[\p{{N}}&&[^{_LATER_NUMBERS}]]"
_P = rf"[\p{{P}}&&[^{_LATER_PUNCTUATION}]]"

_WORDS = rf"'s|'t|'re|'ve|'m|'ll|'d| ?{_L}+| ?{_N}+| ?[^\s{_L}{_N}]+|\s+(?!\S)|\s+"
# Upper and lower case are spelled out: case folding would also match ſ (U+017F).
_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_LINES = rf" ?[^\s{_L}{_N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n{_L}{_N}]?{_L}+|{_N}{{1,3}}|{_LINES}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n{_L}{_N}]?{_L}+|{_N}|{_LINES}"


@dataclasses.dataclass(frozen=True)
class PreTokenizer:
    """One way of cutting text, and the defaults that llama.cpp ties to its name."""

    patterns: tuple[str, ...]
    """Oniguruma patterns, applied in order; unmatched stretches stay as pieces of their own."""
    ignore_merges: bool = False
    """A word that is itself in the vocabulary is taken whole, without merging."""
    add_bos: bool = False
    """Whether BOS is added where the file does not say (`tokenizer.ggml.add_bos_token`)."""


DEFAULT = PreTokenizer((rf"[{_P}\$\+<=>\^~\|]+", _WORDS, rf"{_N}+", r"[0-9][0-9][0-9]"))
"""What llama.cpp uses, with a warning, for a file without `tokenizer.ggml.pre`."""

_GPT2 = PreTokenizer((_WORDS,))
_DIGITS = PreTokenizer((_N, _WORDS))
_LLAMA_BPE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_QWEN = PreTokenizer((_QWEN2,))

# Only names that llama.cpp treats alike in every way that reaches token ids.
_NAMES = {
    _DIGITS: "smollm starcoder",
    _GPT2: "gpt-2 phi-2 jina-es jina-de gigachat a.x-4.0 mellum exaone4",
    _QWEN: "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez",
    _LLAMA_BPE: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
}
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: rule for rule, names in _NAMES.items() for name in names.split()
}
"""Supported names of `tokenizer.ggml.pre`."""
