"""Random strings that tokenizers find hard, and the awkward ones that people reported."""

from __future__ import annotations

import random

SPECIALS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<reponame>", "<bos>", "<eos>",
    "<unk>", "<pad>", "<start_of_turn>",
    "<end_of_turn>", "[multimodal]", "<unused7>", "<table>", "<s>", "</s>", "<0x0A>", "<user>", "<user>x",
)  # fmt: skip
_WORDS = (
    " the", " hello", "world", "'ll", "'VE", " 1234567", "a  123456 b", " don't",
    "    ", " http://a.b/?c=1\n",
    "def f(x):\n    return", "\n\n\n", "3.14", "IMGIMGABZ", "<sentinel:12>", "12,345,678",
)  # fmt: skip
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", "\n\r\t\x0b\x0c \n\n",
    "'sStTrReElLvVmMdD", "!?.,;:()[]{}<>|/\\@#$%^&*-_=+~`\"'", "éèüßñåøœæÅÉ", "абвгґєіїКИЇВ", "αβγΔΩ",
    "你好世界汉字〇龥鿕", "ひらがなカタカナー・", "한국어텍스트ㄱㄴ", "العربية٠١٢٣",
    "हिन्दीमेंाि०१", "ภาษาไทย๐", "עברית",
    "\u0301\u0303\u0308\u20dd\u093e\u0e31", "🚀👩‍👩‍👧🇺🇦👍🏽✈️", "½²Ⅷ①৪𝟙",
    "\u00a0\u1680\u2003\u2028\u2029\u202f\u3000\u0085\u200b\ufeff\u180e",
    "\x00\x01\x04\x13\x1b\x1c\x1f\x7f",
    "ſKİıǅʰªº",
    "\U00010d75\U00010d4a\U000105c0\u1c89\U00011bf0\u0378\U0010ffff\ue000\U0002ebf0\ufdd0\ufffe",
    "…。，、“”‘’—：；！？．۔،।", "▁▁ĠĊ▁",
)  # fmt: skip
# Lone bytes, cut characters, a surrogate, sequences that are too long for their character.
_BROKEN = (
    b"\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80",
    b"\xed\xb2\x80", b"\xc0\x80", b"\xfe\xff",
    b"\xe9", b"\xe0\x80\x80",
)  # fmt: skip

AWKWARD = (
    b"", b"\xef\xbb\xbfwith a mark", "UTF-16 — Київ".encode("utf-16"), "caf\xe9 \xdcber".encode("latin-1"),
    b"lone \x80 continuation", b"\x00NUL\x00", b"cut \xe2\x82", b"\xc3(", b"a\xed\xa0\x80b", b"\xff\xfe",
    b"\xc3<|im_end|>", b"\xf0\x9f<user>\x98", b"\xff   spaces", b"\xc0\xaf\xe0\x80\xaf",
)  # fmt: skip
"""Encodings that are not UTF-8, and parts of it."""


def random_text(rng: random.Random, specials: tuple[str, ...] = SPECIALS) -> bytes:
    """A string of up to 12 parts; three in ten have bytes that are not UTF-8."""
    parts = []
    for _ in range(rng.randint(1, 12)):
        chance = rng.random()
        if chance < 0.12:
            parts.append(rng.choice(specials))
        elif chance < 0.2:
            parts.append(rng.choice(_WORDS))
        else:
            alphabet = rng.choice(_ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 6))))
    data = "".join(parts).encode()
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 4)):
            at = rng.randint(0, len(data))
            data = data[:at] + rng.choice(_BROKEN) + data[at:]
    return data
