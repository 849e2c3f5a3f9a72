"""Whether an answer is right: exact values as whole numbers, whole names, and RULER's own metric."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Sequence

_NUMBER = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+(?:\.[0-9]+)?")
"""A number as texts write it, with commas between thousands or without."""
_NAME = re.compile(r"(?<!\w)[A-Z]{5}(?!\w)")
"""What may be meant as a name of a variable."""

RIGHT, MIXED, PARTIAL, WRONG = "right", "mixed", "partial", "wrong"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What an answer is worth."""

    verdict: str
    """`right`; `mixed`, right with something wrong beside it; `partial`, some of several; `wrong`."""
    score: float
    """Share of what was asked for that is there, 0 to 1, whatever is beside it."""
    found: tuple[str, ...]
    """What was asked for and is there."""
    missing: tuple[str, ...]
    """What was asked for and is not there."""
    others: tuple[str, ...]
    """Other numbers, or other names, in the order of the answer."""
    ruler: float
    """RULER's metric: share of what was asked for that the answer contains, within words and numbers too."""


def judge(text: str, answers: Sequence[str]) -> Verdict:
    """The verdict on an answer: a number if one thing is asked for that is all digits, else names."""
    return judge_number(text, answers[0]) if answers[0].isdecimal() else judge_names(text, answers)


def judge_number(text: str, number: str) -> Verdict:
    """An answer that is to be one number.

    A number counts as a whole: 48271 is in `48271.` and `48,271`, not in `148271`, `48271.5` or `A48271`.
    """
    normal = unicodedata.normalize("NFKC", text)
    numbers = []
    for match in _NUMBER.finditer(normal):
        touching = normal[match.start() - 1 : match.start()] + normal[match.end() : match.end() + 1]
        if not any(character.isalpha() or character == "_" for character in touching):
            numbers.append(match[0].replace(",", ""))
    return _verdict(text, [number], [found for found in numbers if found == number], numbers)


def judge_names(text: str, names: Sequence[str]) -> Verdict:
    """An answer that is to be several names, in any order and case; each counts as a whole word."""
    normal = unicodedata.normalize("NFKC", text)
    found = [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", normal, re.IGNORECASE)]
    return _verdict(text, names, found, _NAME.findall(normal))


def contained(text: str, references: Sequence[str]) -> float:
    """RULER's metric of these tasks: the share of references that a text contains, without regard to case."""
    lower = text.lower()
    return sum(reference.lower() in lower for reference in references) / len(references)


def _verdict(text: str, asked: Sequence[str], found: Sequence[str], seen: Sequence[str]) -> Verdict:
    others = tuple(dict.fromkeys(other for other in seen if other not in asked))
    there = tuple(answer for answer in asked if answer in found)
    missing = tuple(answer for answer in asked if answer not in found)
    if not there:
        verdict = WRONG
    elif missing:
        verdict = PARTIAL
    else:
        verdict = MIXED if others else RIGHT
    return Verdict(verdict, len(there) / len(asked), there, missing, others, contained(text, asked))
