"""Keeps what people write from becoming control tokens once a template has put it into a text.

Two noncharacters do it; both are gone from the text in the end.

- A *guard* is put into the strings of the messages: inside every control-token
  text, and where a string ends or begins with a part of one, which the template
  or the next message could complete.
- A *mark* is put into the control tokens that the template itself spells out
  (`worker`). After rendering, those that carry it are the template's. This
  holds whatever the template did to the messages: cut a part out of the middle,
  changed case, joined pieces.

A template may also build a token from pieces, as in `'<|' + role + '|>'`. Such a
token has no mark. It counts if no guard is in it and a known role or the
template's own strings make it up.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.io.quoting import quote

KNOWN_ROLES = frozenset((
    "system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "observation",
    "environment", "tool_call", "tool_response",
))  # fmt: skip
"""Roles that templates may build control tokens from."""

_CANDIDATES = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Noncharacters: no text has them but by mistake or on purpose, and then others are taken."""
_NAMES = ("role", "type")
"""Keys whose values templates compare with names: nothing is added at their edges."""


def pick_characters(*texts: str) -> tuple[str, str]:
    """A guard and a mark: noncharacters that do not occur in the texts, not even as an escape (`\\ufdd0`).

    Raises:
      InputError: all 32 are taken.
    """
    whole = "\n".join(texts).lower()
    free = [c for c in _CANDIDATES if c not in whole and _escape(c) not in whole]
    if len(free) < 2:
        raise InputError("messages: all of the noncharacters U+FDD0 to U+FDEF occur in them")
    return free[0], free[1]


def guard_messages(messages: Sequence[Mapping[str, Any]], texts: Iterable[str], guard: str) -> list[Any]:
    """Messages with guards in them; a known role stays as it is.

    Args:
      messages: Checked messages.
      texts: Texts of the control tokens.
      guard: A character that is in no message.

    Raises:
      InputError: an unknown role that holds a control-token text or a line break.
    """
    tokens = _Tokens.of(tuple(texts))
    return [_guard_message(message, index, tokens, guard) for index, message in enumerate(messages)]


def settle(
    rendered: str, *, texts: Iterable[str], literals: Sequence[str], guard: str, mark: str
) -> tuple[str, str]:
    """Decides which control tokens of a rendered text are the template's.

    Args:
      rendered: The text with guards and marks.
      texts: Texts of the control tokens.
      literals: What the template spells out.
      guard, mark: The characters.

    Returns:
      The text itself, and the text with a guard in every control token that is
      not the template's and nowhere else.

    Raises:
      InputError: a control token of one character, which nothing can be put into.
    """
    plain, guards, marks = _take_out(rendered, guard, mark)
    accepted: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    for start, end in _Tokens.of(tuple(texts)).places(plain):
        marked = start + 1 in marks and end - 1 in marks
        whole = guards.isdisjoint(range(start + 1, end))
        made = whole and (marked or _buildable(plain[start:end], tuple(literals)))
        (accepted if made else others).append((start, end))
    inside = {at for start, end in accepted for at in range(start + 1, end)}
    cuts: set[int] = set()
    for start, end in others:
        if end - start == 1:
            if any(a <= start and end <= b for a, b in accepted):
                continue
            raise InputError(
                f"messages: {quote(plain[start])} is a control token of one character, which no text can hold"
            )
        # A token within a longer one of the template's is not looked for: the longest is cut out first.
        free = next((at for at in range(start + 1, end) if at not in inside), None)
        if free is not None:
            cuts.add(free)
    ends = [0, *sorted(cuts), len(plain)]
    return plain, guard.join(plain[a:b] for a, b in itertools.pairwise(ends))


class _Tokens:
    """Control-token texts, made ready for searching: a vocabulary may have thousands."""

    def __init__(self, texts: tuple[str, ...]):
        self.texts = frozenset(texts)
        self.starts = {text[:cut] for text in texts for cut in range(1, len(text))}
        self.ends = {text[cut:] for text in texts for cut in range(1, len(text))}
        self.longest = max(map(len, texts), default=0)
        lengths: dict[str, set[int]] = {}
        for text in texts:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = lengths
        self._first = re.compile(f"[{re.escape(''.join(sorted(lengths)))}]" if lengths else "(?!)")

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def of(texts: tuple[str, ...]) -> _Tokens:
        return _Tokens(texts)

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of every occurrence in a text, overlapping ones too."""
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths[match.group()]:
                piece = text[start : start + length]
                if len(piece) == length and piece in self.texts:
                    yield start, start + length


def _guard_message(message: Mapping[str, Any], index: int, tokens: _Tokens, guard: str) -> dict[str, Any]:
    role = message.get("role")
    if isinstance(role, str) and role not in KNOWN_ROLES:
        for start, end in tokens.places(role):
            held = quote(role[start:end])
            raise InputError(f"messages: message {index}: role {quote(role)} holds the control token {held}")
        if len(role.splitlines()) > 1 or role.splitlines() != [role]:
            raise InputError(f"messages: message {index}: role {quote(role)} is not one line")
    guarded = {key: _guard(value, key, tokens, guard) for key, value in message.items()}
    if isinstance(role, str):
        guarded["role"] = role if role in KNOWN_ROLES else _guard_text(role, tokens, guard)
    return guarded


def _guard(value: Any, key: str | None, tokens: _Tokens, guard: str) -> Any:
    if isinstance(value, str):
        return _guard_text(value, tokens, guard, at_edges=key not in _NAMES)
    if isinstance(value, Mapping):
        return {
            _guard_text(name, tokens, guard, at_edges=False): _guard(item, name, tokens, guard)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_guard(item, None, tokens, guard) for item in value]
    return value


def _guard_text(text: str, tokens: _Tokens, guard: str, *, at_edges: bool = True) -> str:
    cuts = {start + 1 for start, _ in tokens.places(text)}
    if at_edges:
        # A template may trim its messages, so what is left then counts as an edge too.
        first = len(text) - len(text.lstrip())
        last = len(text.rstrip())
        for end in {len(text), last}:
            for start in range(max(end - tokens.longest, 0), end):
                if text[start:end] in tokens.starts:
                    cuts.add(start + 1)
        for start in {0, first}:
            for end in range(start + 1, min(start + tokens.longest, len(text)) + 1):
                if text[start:end] in tokens.ends:
                    cuts.add(end - 1)
    if not cuts:
        return text
    ends = [0, *sorted(cuts), len(text)]
    return guard.join(text[a:b] for a, b in itertools.pairwise(ends))


def _take_out(rendered: str, guard: str, mark: str) -> tuple[str, set[int], set[int]]:
    # repr and an ASCII tojson write both characters as escapes, which are in no text of their own.
    for character in (guard, mark):
        rendered = rendered.replace(_escape(character), character)
    parts: list[str] = []
    at: dict[str, set[int]] = {guard: set(), mark: set()}
    length = 0
    for part in re.split(f"([{guard}{mark}])", rendered):
        if part in at:
            at[part].add(length)
        else:
            parts.append(part)
            length += len(part)
    return "".join(parts), at[guard], at[mark]


@functools.lru_cache(maxsize=1024)
def _buildable(token: str, literals: tuple[str, ...]) -> bool:
    """Whether a template's pieces can make a token: a start, an end, and at most one more between them."""
    if any(token in literal for literal in literals):
        return False  # spelled out, so the template's own ones carry the mark
    starts = {cut for cut in range(1, len(token)) if any(token[:cut] in literal for literal in literals)}
    ends = {cut for cut in range(1, len(token)) if any(token[cut:] in literal for literal in literals)}
    if starts & ends:
        return True
    middles = {form for role in KNOWN_ROLES for form in (role, role.upper(), role.capitalize())}
    middles |= {literal for literal in literals if literal and literal in token}
    return any(
        start in starts and start + len(middle) in ends
        for middle in middles
        for start in _occurrences(token, middle)
    )


def _occurrences(text: str, part: str) -> Iterable[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def without(text: str, *characters: str) -> str:
    """A text, for example an error message, without guards and marks, also where they are escaped."""
    for character in characters:
        text = text.replace(character, "").replace(_escape(character), "")
    return text


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}"
