"""Cuts a text into words, step by step, as llama.cpp's regex stage does.

A step sees the text in one of two forms. Patterns of bytes run on the collapsed
text, in which a character outside ASCII is one byte that names its class
(`unicode_classes`); so `[A-Za-z\\xD2]` is every letter. Patterns of text run on
the text itself, with every space outside ASCII replaced by a vertical tab.
In both, `\\s` and `\\d` are ASCII. Each step cuts inside the pieces that the one
before left, and sees nothing outside its piece.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from synapse_jax.io.unicode_classes import collapse

Cutter = Callable[[bytes, int, int], Iterator[int]]
"""Given the collapsed text and a piece of it, yields ends of words in rising order, maybe not the last."""
Step = bytes | str | Cutter
"""A pattern: what matches is a word, and so is what lies between two matches. Or a Cutter."""

_WIDE_SPACES = dict.fromkeys(
    [0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000], "\x0b"
)
_NUMBERS = re.compile(rb"[0-9\xD1]+")
_DIGITS = re.compile(rb"[0-9]+")
_WHITE = b" \t\n\r\f\v"


def split_words(text: str, steps: tuple[Step, ...]) -> list[str]:
    """The words of a text; joined, they are the text.

    Args:
      text: Any text; it may hold surrogates.
      steps: Applied one after the other.
    """
    collapsed, wide = collapse(text), None
    ends = [len(text)] if text else []
    for step in steps:
        starts = [0, *ends[:-1]]
        if isinstance(step, bytes):
            ends = list(_match(re.compile(step), collapsed, zip(starts, ends, strict=True)))
        elif isinstance(step, str):
            wide = wide or (text if text.isascii() else text.translate(_WIDE_SPACES))
            ends = list(_match(re.compile(step, re.ASCII), wide, zip(starts, ends, strict=True)))
        else:
            ends = list(_cut(step, collapsed, zip(starts, ends, strict=True)))
    return [text[start:end] for start, end in itertools.pairwise([0, *ends])]


def _match(pattern: re.Pattern, text: str | bytes, pieces: Iterator[tuple[int, int]]) -> Iterator[int]:
    for start, end in pieces:
        # A lookahead takes the end of the piece for the end of the text; a lookbehind would see too much.
        for match in pattern.finditer(text, start, end):
            first, last = match.span()
            if first > start:
                yield first
            yield last
            start = last
        if start < end:
            yield end


def _cut(cutter: Cutter, text: bytes, pieces: Iterator[tuple[int, int]]) -> Iterator[int]:
    for start, end in pieces:
        for cut in cutter(text, start, end):
            if start < cut < end:
                yield cut
                start = cut
        yield end


def cut_thousands(text: bytes, start: int, end: int) -> Iterator[int]:
    """Groups of three numerals, counted from the right of each run.

    There is no cut before a run: llama.cpp leaves its first group with the text before it.
    """
    for match in _NUMBERS.finditer(text, start, end):
        first, last = match.span()
        yield from range(first + ((last - first) % 3 or 3), last + 1, 3)


def cut_digit_triples(text: bytes, start: int, end: int) -> Iterator[int]:
    """A cut wherever three, six, … ASCII digits are left in a run."""
    for match in _DIGITS.finditer(text, start, end):
        first, last = match.span()
        yield from range(first + (last - first) % 3, last, 3)


def cut_trailing_space(text: bytes, start: int, end: int) -> Iterator[int]:
    """White space at the end of the piece is a word (`\\s+$`, which backtracks for ever as a pattern)."""
    yield start + len(text[start:end].rstrip(_WHITE))
