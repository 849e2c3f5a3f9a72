"""Two records of one run side by side: what moved, and by how much."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Moved:
    """Something that differs between two records."""

    what: str
    """Dotted name, as `fingerprints.step 512×1024.jax` or `result.perplexity`."""
    then: Any
    now: Any

    def __str__(self) -> str:
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (self.then, self.now))
        by = f" (by {self.now - self.then:+.3g})" if numbers else ""
        return f"{self.what}: {_short(self.then)} → {_short(self.now)}{by}"


def moved(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Moved]:
    """What differs between two records of `score`: origin first, figures after it.

    Timings, memory and paths are left out: they are no part of what was computed.
    """
    models = [{name: record["model"][name] for name in ("arch", "sha256")} for record in (then, now)]
    found = list(_differences("model", *models))
    for part in ("tokens", "runtime", "device", "versions"):
        found += _differences(part, then[part], now[part])
    found += _differences("fingerprints", _parts(then), _parts(now))
    return found + list(_figures(then["result"], now["result"]))


def _figures(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Moved]:
    yield from _differences("result", *(_without(r, "chunks", "verify") for r in (then, now)))
    sums = [[chunk["nll_sum"] for chunk in result["chunks"]] for result in (then, now)]
    if len(sums[0]) != len(sums[1]):
        yield Moved("result.chunks", len(sums[0]), len(sums[1]))
        return
    changes = [b - a for a, b in zip(*sums, strict=True)]
    index = max(range(len(changes)), key=lambda i: math.fabs(changes[i]), default=None)
    if index is not None and any(changes):
        count = sum(change != 0 for change in changes)
        name = f"result.chunks: {count} of {len(changes)} moved, most of all the NLL sum of chunk {index}"
        yield Moved(name, sums[0][index], sums[1][index])


def _parts(record: Mapping[str, Any]) -> dict[str, Any]:
    """Every part of every fingerprint by name, entry by entry."""
    return {
        f"{entry['entry']} {entry['rows']}×{entry['capacity']}": entry["parts"]
        for entry in record["fingerprints"]["entries"]
    }


def _differences(name: str, then: Any, now: Any) -> Iterator[Moved]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*then, *now]):
            yield from _differences(f"{name}.{key}", then.get(key), now.get(key))
    elif then != now:
        yield Moved(name, then, now)


def _without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:16]}…" if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
