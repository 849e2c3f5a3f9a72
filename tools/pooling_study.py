"""What pooling keys after rotation does to them, beside pooling before it: by the block's offset in the text.

    python tools/pooling_study.py --output FOLDER [--model NAME] [--length N]

Queries and keys of every layer and head of a real model, on the first tokens of the parity text. A block
of b keys is pooled twice: rotated keys are averaged (after), or unrotated keys are averaged and the mean
is rotated at the midpoint (before: what `compressed` does). Rotation keeps lengths, so |after| / |before| is
what averaging at different angles takes away. Writes pooling.json and pooling.png, prints a table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import synapse_jax as sj  # noqa: E402
from synapse_jax.errors import InputError, RunError  # noqa: E402
from synapse_jax.graph.sequences import angles, sequence_function  # noqa: E402
from synapse_jax.ir.build import build  # noqa: E402
from synapse_jax.ops.attention.sequences import attend_sequence  # noqa: E402
from synapse_jax.runtime.params import load_params  # noqa: E402
from synapse_jax.spec.rope_table import rope_rows  # noqa: E402
from synapse_jax.spec.runtime import resolve  # noqa: E402
from tools.corpus import corpus_path  # noqa: E402

BLOCKS = (4, 8, 16)
OFFSETS = 16
"""Groups of neighbouring blocks in table and plot."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--length", type=int, default=512)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    record = study(arguments.model, arguments.length)
    (arguments.output / "pooling.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    plot(record, arguments.output / "pooling.png")
    print("| b | shortening, median (5 … 95 %) | score error / spread of scores, first … last blocks |")
    print("|---|---|---|")
    for block, found in record["blocks"].items():
        low, median, high = found["shortening_5_50_95"]
        errors = found["score_error"]
        print(f"| {block} | {median:.3f} ({low:.3f} … {high:.3f}) | {errors[0]:.3f} … {errors[-1]:.3f} |")


def study(name: str, length: int) -> dict[str, Any]:
    """The figures of one model."""
    with sj.load(name) as model:
        text = corpus_path().read_text(encoding="utf-8")
        ids = np.array(model.tokenizer.encode(text[: 16 * length])[:length], np.int32)
        profile = resolve(sj.RuntimeProfile(context=length), model.spec)
        ir = build(model.spec, profile)
        params = load_params(ir, model, jax.devices("cpu")[0])
        q_LSNH, k_LSKH = queries_and_keys(ir, params, ids)
        cos_SR, sin_SR = rope_rows(ir.rope_tables[0], np.arange(length))
        group = model.spec.group_size
        blocks = {str(b): pooled(q_LSNH, k_LSKH, cos_SR, sin_SR, group, b) for b in BLOCKS}
        return {"model": name, "sha256": model.sha256(), "length": length, "blocks": blocks}


def queries_and_keys(ir, params, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotated queries and keys of every layer, on their way through the engine's own graph."""
    seen: list[tuple[Any, Any]] = []

    def watched(q, k, v, *rest):
        jax.debug.callback(lambda q, k: seen.append((np.asarray(q), np.asarray(k))), q, k, ordered=True)
        return attend_sequence(q, k, v, *rest)

    function = sequence_function(ir, watched)
    jax.jit(lambda *x: function(*x)[0, -1])(params, ids[None], angles(ir, len(ids))).block_until_ready()
    jax.effects_barrier()
    return np.stack([q for q, _ in seen]), np.stack([k for _, k in seen])


def pooled(q_LSNH, k_LSKH, cos_SR, sin_SR, group: int, block: int) -> dict[str, Any]:
    """Shortening of pooled keys, and how far scores move, by the blocks' offset."""
    whole = k_LSKH.shape[1] // block * block
    middle = np.arange(0, whole, block) + block // 2
    unrotated = turn(k_LSKH[:, :whole], cos_SR[:whole], -sin_SR[:whole])

    def mean(x: np.ndarray) -> np.ndarray:
        return x.reshape(x.shape[0], -1, block, *x.shape[2:]).mean(2)

    after, before = mean(k_LSKH[:, :whole]), turn(mean(unrotated), cos_SR[middle], sin_SR[middle])
    shortening = np.linalg.norm(after, axis=-1) / np.linalg.norm(before, axis=-1)  # [L, X, K]
    # Scores of the last query, of each head with its own KV head.
    q = q_LSNH[:, -1].reshape(q_LSNH.shape[0], -1, group, q_LSNH.shape[-1])
    score_after, score_before = (np.einsum("lkgh,lxkh->lkgx", q, k) for k in (after, before))
    spread = score_before.std(-1, keepdims=True)
    error = np.abs(score_after - score_before) / spread
    groups = np.array_split(np.arange(len(middle)), OFFSETS)
    return {
        "shortening_5_50_95": np.quantile(shortening, [0.05, 0.5, 0.95]).tolist(),
        "offset": [float(middle[g].mean()) for g in groups],
        "shortening": [float(np.median(shortening[:, g])) for g in groups],
        "score_error": [float(error[..., g].mean()) for g in groups],
        "score_bias": [float(((score_after - score_before) / spread)[..., g].mean()) for g in groups],
    }


def turn(x: np.ndarray, cos_XR: np.ndarray, sin_XR: np.ndarray) -> np.ndarray:
    """Rotates [L, X, heads, H] by the angles of X positions."""
    pairs = cos_XR.shape[-1]
    cos, sin = cos_XR[:, None, :], sin_XR[:, None, :]
    a, b, rest = np.split(x.astype(np.float64), [pairs, 2 * pairs], axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def plot(record: dict[str, Any], path: Path) -> None:
    """Shortening and score error by block offset."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for block, found in record["blocks"].items():
        left.plot(found["offset"], found["shortening"], "o-", label=f"b = {block}")
        right.plot(found["offset"], found["score_error"], "o-", label=f"b = {block}")
    left.set(title="|pooled after rotation| / |pooled before|, median", ylim=(0, 1.05))
    right.set(title="|Δ score| of the last query / spread of its scores", ylim=(0, None))
    for axes in (left, right):
        axes.set_xlabel("block offset, tokens")
    left.legend()
    figure.suptitle(f"{record['model']}, {record['length']} tokens")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(f"pooling_study: error: {error}")
