"""How the graphs of two sides differ: the parts by name, and readable differences of their texts."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CONTEXT_LINES = 3
"""Lines shown before and after a change."""
_VALUE = re.compile(r"%\w+")
_MAIN = re.compile(r"func\.func public @main\(.*")


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing in which two sides differ."""

    where: str
    """`profile`, or an entry as `step 32×1024`; after the name of the profile where there are several."""
    part: str
    """The part of the identity, or `arguments`, or `only in A`."""
    platforms: tuple[str, ...] = ()
    """Of `stablehlo`, the platforms for which it differs."""
    lines: tuple[str, ...] = ()
    """A unified difference of the texts; none where a part has no text of its own."""


def section_differences(
    a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str] = ("A", "B")
) -> Iterator[Difference]:
    """How two sections of manifests (`manifest.describe_profile`) differ.

    The texts of `ir` and of the other parts of a profile stand with the part that they explain. A program's
    own part is `stablehlo`; it is compared for every platform that both sides have.
    """
    identity_a, identity_b = a["identity"], b["identity"]
    parts = [part for part in dict.fromkeys([*identity_a, *identity_b]) if part != "digest"]
    changed = [part for part in parts if identity_a.get(part) != identity_b.get(part)]
    for part in changed:
        text_a, text_b = (side["ir"] if part == "ir" else _lines_of(part, side["profile"]) for side in (a, b))
        yield Difference("profile", part, lines=unified(text_a, text_b, part, names))
    if a["params"] != b["params"]:
        lines = unified(a["params"], b["params"], "weight arguments", names)
        yield Difference("profile", "weight arguments", lines=lines)
    for entry in dict.fromkeys([*a["entries"], *b["entries"]]):
        one, other = a["entries"].get(entry), b["entries"].get(entry)
        if one is None or other is None:
            yield Difference(entry, f"only in {names[one is None]}")
            continue
        if one["arguments"] != other["arguments"]:
            lines = unified(one["arguments"], other["arguments"], f"{entry} arguments", names)
            yield Difference(entry, "arguments", lines=lines)
        platforms = tuple(
            platform
            for platform, program in one["programs"].items()
            if other["programs"].get(platform, program)["stablehlo"] != program["stablehlo"]
        )
        if platforms:
            yield Difference(entry, "stablehlo", platforms=platforms)


def unified(a: Sequence[str], b: Sequence[str], what: str, names: tuple[str, str]) -> tuple[str, ...]:
    """The unified difference of two texts, without line ends; empty where they are equal."""
    titles = (f"{name} {what}" for name in names)
    return tuple(difflib.unified_diff(a, b, *titles, n=CONTEXT_LINES, lineterm=""))


def module_difference(a: str, b: str, what: str, names: tuple[str, str]) -> tuple[str, ...]:
    """As `unified`, of two StableHLO texts, each argument of the main function on a line of its own.

    A value's name holds its number, which follows from all values before it: names alone make no difference.
    """
    lines = [_MAIN.sub(lambda main: main[0].replace(", %arg", ",\n    %arg"), x).splitlines() for x in (a, b)]
    matched = [[_VALUE.sub("%", line) for line in side] for side in lines]
    out: list[str] = []
    for group in difflib.SequenceMatcher(None, *matched, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        (_, a_first, _, b_first, _), (_, _, a_stop, _, b_stop) = group[0], group[-1]
        out.append(f"@@ -{a_first + 1},{a_stop - a_first} +{b_first + 1},{b_stop - b_first} @@")
        for kind, a0, a1, b0, b1 in group:
            if kind == "equal":
                out += [f" {line}" for line in lines[0][a0:a1]]
            else:
                out += [f"-{line}" for line in lines[0][a0:a1]] + [f"+{line}" for line in lines[1][b0:b1]]
    return (f"--- {names[0]} {what}", f"+++ {names[1]} {what}", *out) if out else ()


def _lines_of(part: str, profile_lines: Sequence[str]) -> list[str]:
    return [line for line in profile_lines if line.split(" ", 1)[0] == part]
