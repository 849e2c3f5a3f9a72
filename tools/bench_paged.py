"""Measures pages against the contiguous reference cache of the tests: prompts and decoding at depths.

    python tools/bench_paged.py [--model smollm2-135m-instruct] [--depths 1024 4096 8192] [--output FILE]

Both run the same layers on the same rows; only where keys and values lie differs. Rounds alternate; the
figures are medians with the lowest and the highest. Depths that a former run has recorded are not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from synapse_jax.dims import DECODE_TOKENS, MAX_STEP_ROWS, capacity_rung  # noqa: E402
from synapse_jax.graph.entry import DECODE_ROLE, Entry  # noqa: E402
from synapse_jax.graph.lower import entry_function  # noqa: E402
from synapse_jax.io.model_file import load  # noqa: E402
from synapse_jax.ir.build import build  # noqa: E402
from synapse_jax.kv.pages import abstract_pages  # noqa: E402
from synapse_jax.runtime import packing  # noqa: E402
from synapse_jax.runtime.params import load_params  # noqa: E402
from synapse_jax.spec.runtime import RuntimeProfile, resolve  # noqa: E402
from tests.contiguous import contiguous_attention, contiguous_cache  # noqa: E402
from tests.paging import new_sequence  # noqa: E402


class Lane:
    """One kind of cache: its compiled entries and its contents."""

    def __init__(self, ir: Any, params: Any, capacity: int, cache: Any, attend: Any):
        self._ir, self._params, self._capacity, self._cache = ir, params, capacity, cache
        self._attend = attend
        self._compiled: dict[str, Callable] = {}

    def run(self, entry: Entry, batch: Any) -> float:
        """Seconds of a call."""
        if entry.name not in self._compiled:
            function = entry_function(self._ir, entry, self._attend)
            self._compiled[entry.name] = jax.jit(function, donate_argnums=1)
        started = time.perf_counter()
        out, self._cache = self._compiled[entry.name](self._params, self._cache, batch)
        jax.block_until_ready(out)
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--kv-dtype", default="f32")
    parser.add_argument("--depths", type=int, nargs="*", default=[1024, 4096, 8192])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    done: dict[str, Any] = {}
    if arguments.output and arguments.output.exists():
        done = json.loads(arguments.output.read_text())
    device = jax.devices("cpu")[0]
    with load(arguments.model) as model:
        profile = resolve(RuntimeProfile(kv_dtype=arguments.kv_dtype), model.spec)
        ir = build(model.spec, profile)
        params = load_params(ir, model, device)
    for depth in arguments.depths:
        if str(depth) in done:
            continue
        done[str(depth)] = measure(ir, params, depth, arguments.rounds)
        print(f"{depth}: {json.dumps(done[str(depth)])}", flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(done, indent=1) + "\n")


def measure(ir: Any, params: Any, depth: int, rounds: int) -> dict[str, Any]:
    """Seconds of a whole prompt of `depth` tokens, and of decoding at its end, for both caches."""
    profile = ir.profile
    capacity = capacity_rung(depth, profile.context, profile.page_size)
    pages = tuple(jnp.zeros(a.shape, a.dtype) for a in abstract_pages(ir.spec, profile, capacity))
    lanes = {
        "paged": Lane(ir, params, capacity, pages, None),
        "contiguous": Lane(
            ir, params, capacity, contiguous_cache(ir, capacity), contiguous_attention(profile.page_size)
        ),
    }
    sequence = new_sequence(ir, capacity)
    ids = np.random.RandomState(0).randint(1000, ir.spec.vocab_size, depth).astype(np.int32)
    prompt, step = [], Entry("step", MAX_STEP_ROWS, capacity)
    for first in range(0, depth, MAX_STEP_ROWS):
        sequence.slide(first)
        sequence.extend(first, MAX_STEP_ROWS)
        segment = packing.Segment(ids[first : first + MAX_STEP_ROWS], first, sequence.tables)
        prompt.append(packing.step_batch(packing.pack_rows(step, ir, [segment])))
    # Decoding goes over the last positions again: the context may end there.
    start = depth - DECODE_TOKENS
    segment = packing.Segment(ids[start : start + 1], start, sequence.tables, DECODE_ROLE)
    decode = Entry("decode", 1, capacity)
    turns = packing.decode_batch(decode, ir, segment, turns=DECODE_TOKENS)
    times: dict[str, dict[str, list[float]]] = {name: {"prompt": [], "decode": []} for name in lanes}
    for turn in range(rounds + 1):
        for name, lane in lanes.items():
            seconds = {
                "prompt": sum(lane.run(step, batch) for batch in prompt),
                "decode": lane.run(decode, turns),
            }
            if turn:  # the first run compiles and plans its products
                for kind, value in seconds.items():
                    times[name][kind].append(value)
    summary: dict[str, Any] = {}
    for kind, tokens in (("prompt", depth), ("decode", DECODE_TOKENS)):
        medians = {name: statistics.median(times[name][kind]) for name in lanes}
        summary[kind] = {
            **{
                name: {
                    "tokens_per_second": round(tokens / medians[name], 2),
                    "lowest": round(tokens / max(times[name][kind]), 2),
                    "highest": round(tokens / min(times[name][kind]), 2),
                }
                for name in lanes
            },
            "ratio": round(medians["contiguous"] / medians["paged"], 3),
        }
    return summary


if __name__ == "__main__":
    main()
