"""The table of `synapse quality`."""

from __future__ import annotations

from typing import Any


def table(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of (name, value): every task, length and depth, every failure, and what was run."""
    result, speed = record["result"], record["timings"]["tokens_per_second"]
    control, haystack = result["control"], result["haystack"]
    rows = [(_name(cell), _cell(cell)) for cell in result["cells"]]
    rows += [(_name(case), _failure(case)) for case in result["cases"] if case["failed"]]
    if control is not None:
        rows += [("control", f"{control['engine']} on {control['given']}"), ("answers", _agreement(result))]
        rows += [(_name(case), _difference(case)) for case in result["cases"] if not case["identical"]]
    chat = "none" if result["chat"] is None else f"its own, at {result['chat']['now']}"
    return [
        *rows,
        ("prompts", f"{'RULER, ' if result['ruler'] else ''}seed {result['seed']}, chat template {chat}"),
        (
            "haystack",
            f"{len(haystack['files'])} files (sha256 {haystack['sha256'][:16]}…)",
        ),
        ("model", f"{record['model']['name']} ({record['model']['arch']}), {record['runtime']['precision']}"),
        ("attention", f"{record['runtime']['attention']}, KV {record['runtime']['kv_dtype']}"),
        ("speed", "none" if speed is None else f"{speed:.1f} tokens/s"),
        ("profile", record["fingerprints"]["profile"]),
    ]


def _name(row: dict[str, Any]) -> str:
    depth = "" if row["depth"] is None else f" at {row['depth']:g}"
    sample = f" #{row['sample']}" if row.get("sample") else ""
    return f"{row['task']} {row['length']}{depth}{sample}"


def _cell(cell: dict[str, Any]) -> str:
    parts = [f"{cell['right'] + cell['mixed']} of {cell['cases']} right"]
    if cell["mixed"]:
        parts[0] += f" ({cell['mixed']} with others beside)"
    if cell["partial"]:
        parts.append(f"{cell['partial']} partly")
    parts.append(f"score {cell['score']:.2f}, RULER's {cell['ruler']:.2f}")
    if cell["control_score"] is not None:
        parts.append(f"control {cell['control_score']:.2f}")
    return ", ".join(parts)


def _failure(case: dict[str, Any]) -> str:
    ours = case["ours"]
    if case["control"] is None:
        other = "no control ran"
    elif case["control_failed_the_same_way"]:
        other = "the control failed the same way"
    elif case["control"]["score"] < 1:
        other = f"the control failed otherwise: {case['control']['text']!r}"
    else:
        other = "the control was right"
    return f"{ours['verdict']}: {ours['text']!r}, missing {', '.join(ours['missing'])}; {other}"


def _agreement(result: dict[str, Any]) -> str:
    found = result["agreement"]
    margin = found["largest_margin"]
    return f"{found['identical']} of {found['cases']} are the control's, byte for byte" + (
        "" if margin is None else f"; largest margin where tokens part {margin:.2g} logits"
    )


def _difference(case: dict[str, Any]) -> str:
    where = f"token {case['first_difference']} differs"
    if case["margin"] is not None:
        where += f" by a margin of {case['margin']:.2g} logits"
    return f"{where}: {case['ours']['text']!r}, control {case['control']['text']!r}"
