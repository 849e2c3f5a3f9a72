"""How text is cut into words before byte-pair merging, by the name in `tokenizer.ggml.pre`.

The rules are those of llama.cpp (src/llama-vocab.cpp, the `llm_tokenizer_bpe`
constructor and `llama_vocab::impl::load`, with the hand-written splitters of
src/unicode.cpp), so that ids are equal. Where it differs from the tokenizer of
the model's authors, so do we.
"""

from __future__ import annotations

import dataclasses

from synapse_jax.io.word_splits import (
    Step,
    cut_digit_triples,
    cut_thousands,
    cut_trailing_space,
)


@dataclasses.dataclass(frozen=True)
class PreTokenizer:
    """One way of cutting text, and what llama.cpp ties to its name."""

    steps: tuple[Step, ...]
    """Applied in order, see `word_splits`."""
    ignore_merges: bool = False
    """A word that is itself in the vocabulary is taken whole, without merging."""
    add_bos: bool = False
    """Whether BOS is added where the file does not say (`tokenizer.ggml.add_bos_token`)."""
    raw: bool = False
    """Pieces are text with `▁` for a space, not byte-level: words are merged as they are."""
    whole_lines: bool = False
    """A run of line feeds that is in the vocabulary is taken whole. (Gemma 4 then also always adds BOS.)"""


def _bytes(pattern: str) -> bytes:
    """A pattern for the collapsed text."""
    return pattern.encode("latin-1")


# Classes on the collapsed text, to be put in brackets.
_L, _N, _M = "A-Za-z\xd2", "0-9\xd1", "\xd4"
_P, _S = r"!-#%-*,\-./:;?@\[\\\]_{}" + "\xd3", r"$+<=>\^`|~" + "\xd5"
_PUNCTUATION = r"!-/:-@\[-`{-~"

_CONTRACTION = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_SPACES = r"\s+(?!\S)|\s+"
_LINES = rf"\s*[\r\n]+|{_SPACES}"
_SIGNS = rf" ?[^\s{_L}{_N}]+"
_AFTER_ANY = rf"[^\r\n{_L}{_N}]?"

_WORDS = _bytes(rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{_L}]+| ?[{_N}]+|{_SIGNS}|{_SPACES}")
_NUMERAL, _THREE = _bytes(rf"[{_N}]"), _bytes(rf"[{_N}]{{1,3}}")
_LINE = _bytes(r"[\r\n]")
_LINE_FEEDS = _bytes(r"[^\n]+|\n+")


def _modern(
    numbers: str, *, word: str = rf"{_AFTER_ANY}[{_L}]+", rest: str = rf"{_SIGNS}[\r\n]*|{_LINES}"
) -> bytes:
    return _bytes(rf"{_CONTRACTION}|{word}|[{_N}]{numbers}|{rest}")


def _cased(extra: str, numbers: str, ending: str) -> bytes:
    """Words end where case falls; outside ASCII a letter is of both cases, and of `extra` too."""
    upper, lower = f"A-Z\xd2{extra}", f"a-z\xd2{extra}"
    return _bytes(
        rf"{_AFTER_ANY}[{upper}]*[{lower}]+{ending}|{_AFTER_ANY}[{upper}]+[{lower}]*{ending}"
        rf"|[{_N}]{numbers}|{_SIGNS}[\r\n/]*|{_LINES}"
    )


def _marked(numbers: str) -> bytes:
    """Letters with their marks, of any case: llama.cpp does not tell Lu from Ll."""
    ending = f"(?:{_CONTRACTION})?"
    return _bytes(rf"{_AFTER_ANY}[{_L}{_M}]+{ending}|[{_N}]{numbers}|{_SIGNS}[\r\n/]*|{_LINES}")


def _signs_first(rest: str) -> bytes:
    return _bytes(rf"[{_PUNCTUATION}][A-Za-z]+|[^\r\n{_L}{_P}{_S}]?[{_L}{_M}]+| ?[{_P}{_S}]+{rest}|{_SPACES}")


_HAN_KANA = "[\u4e00-\u9fa5\u3040-\u30ff]+"
_HAN_HANGUL = "[\u0800-\u9fa5\uac00-\ud7ff]+"
_SENTENCES = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c" + r")]+"
_EAST_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0eff\u1780-\u17ff"
    "\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
    "\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u30ff]+"
)
_DEEPSEEK_LETTERS = (
    r"\s?[A-Za-z"
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
_DEEPSEEK_SIGNS = r"\s?[!-/:-~" + "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"

DEFAULT = PreTokenizer((_bytes(rf"[{_P}$+<=>\^~|]+"), _WORDS, _bytes(rf"[{_N}]+"), _bytes("[0-9]{3}")))
"""What llama.cpp uses, with a warning, for a file without `tokenizer.ggml.pre`."""
GEMMA4 = PreTokenizer((_LINE_FEEDS,), add_bos=True, raw=True, whole_lines=True)
"""The rule of `tokenizer.ggml.model` = `gemma4`, which needs no name."""

_LLAMA3, _QWEN2 = _modern("{1,3}"), _modern("")
_CASED_ENDING = f"(?:{_CONTRACTION})?"

# Only names that llama.cpp treats alike in every way that reaches token ids.
_NAMES = {
    PreTokenizer((_WORDS,)): (
        "gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe modern-bert "
        "gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling"
    ),
    PreTokenizer((_NUMERAL, _WORDS)): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True): (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
    ),
    PreTokenizer((_LLAMA3,)): "dbrx smaug-bpe chatglm-bpe",
    PreTokenizer((_LLAMA3,), ignore_merges=True): "glm4 glm5",
    PreTokenizer((_QWEN2,)): (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2"
    ),
    PreTokenizer(
        (_modern("", word=rf"[^\r\n{_L}{_N}]?[{_L}{_M}]+", rest=rf" ?[^\s{_L}{_M}{_N}]+[\r\n]*|{_LINES}"),)
    ): "qwen35",
    PreTokenizer((_bytes(rf"{_AFTER_ANY}[{_L}]+|[{_N}]|{_SIGNS}[\r\n]*|{_LINES}"),)): "ufakzeka",
    PreTokenizer((_LINE_FEEDS, _QWEN2)): "laguna",
    PreTokenizer((_THREE, _modern("+")), ignore_merges=True): "minicpm5",
    PreTokenizer(
        (
            _modern(
                "{1,3}",
                rest=rf"{_SIGNS}[\r\n]*|\s*[\r\n]+|"
                + "|".join(rf"\s{{{2**power}}}(?!\S)" for power in range(9, 1, -1))
                + r"|\s{1,2}(?!\S)|\s",
            ),
        )
    ): "jais-2",
    PreTokenizer(
        (
            _bytes(
                rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_AFTER_ANY}[{_L}]+|[{_N}]|{_SIGNS}[\r\n]*"
                rf"|\s*[\r\n]|{_SPACES}"
            ),
        )
    ): "bailingmoe bailingmoe2 llada-moe",
    PreTokenizer((_modern("", rest=rf" ?[^\s{_L}{_N}\r\n]+|{_LINES}"),)): "seed-coder",
    PreTokenizer(
        (
            _modern(
                "",
                word=rf"{_AFTER_ANY}(?:[{_L}][{_M}]*(?: [{_L}][{_M}]*)*)+",
                rest=rf"{_SIGNS}[\r\n/]?|\s*[\r\n]|{_SPACES}",
            ),
        )
    ): "exaone-moe",
    PreTokenizer((_cased("", "", ""),), ignore_merges=True, add_bos=True): "tekken",
    PreTokenizer((_cased("", "{1,3}", _CASED_ENDING),)): "gpt-4o llama4 kanana2 talkie minimax-m2",
    PreTokenizer((_cased(_M, "{1,3}", _CASED_ENDING),), ignore_merges=True): "granite-embed-multi-97m",
    PreTokenizer((cut_thousands, _marked("{1,3}"))): "tiny_aya cohere2moe",
    PreTokenizer((_YOUTU_SCRIPTS, _marked("")), ignore_merges=True): "youtu",
    PreTokenizer(
        (
            _LINE,
            _DEEPSEEK_LETTERS,
            _DEEPSEEK_SIGNS,
            cut_trailing_space,
            _HAN_HANGUL,
            _bytes(rf"[{_N}]+"),
        )
    ): "deepseek-llm",
    PreTokenizer(
        (_LINE, _bytes(rf"\s?[{_L}]+"), _bytes(rf"\s?[{_P}]+"), _HAN_HANGUL, _NUMERAL)
    ): "deepseek-coder",
    PreTokenizer((_THREE, _HAN_KANA, _signs_first(r"[\r\n]*|\s*[\r\n]+"))): (
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4"
    ),
    PreTokenizer((_THREE, _HAN_KANA, _signs_first(r"|[\r\n]"), _NUMERAL)): "spark2_5",
    PreTokenizer((cut_thousands, _EAST_ASIAN, _signs_first(r"[\r\n]*|\s*[\r\n]+"))): "afmoe",
    PreTokenizer((_bytes(rf"[{_P}$+<=>\^~|`]+"), _WORDS, _bytes("[0-9]{3}"))): "falcon",
    PreTokenizer((_SENTENCES,)): "bloom poro-chat gpt3-finnish",
    PreTokenizer((_SENTENCES, _NUMERAL)): "viking",
    PreTokenizer((_bytes(rf"[{_N}]+"), cut_digit_triples)): "superbpe",
    PreTokenizer(
        (
            ("<sentinel:[0-9]+>"),
            ("IMGIMG[A-I]{1,4}Z"),
            (r"[\t\n]|    |  "),
            _NUMERAL,
            _bytes(rf"[{_P}{_PUNCTUATION}]"),
            _WORDS,
        ),
        add_bos=True,
    ): "chameleon",
}
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: rule for rule, names in _NAMES.items() for name in names.split()
}
"""Supported names of `tokenizer.ggml.pre`; the first of a family's names is the most common one."""
