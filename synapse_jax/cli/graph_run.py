"""`synapse graph run FOLDER`."""

from __future__ import annotations

import hashlib
import time

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import SOURCES, open_model, read_input
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress
from synapse_jax.errors import InputError

OPERANDS = ("folder",)
"""Flags that words without a dash fill in."""


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    flags.DEFINE_string("folder", None, "What graph export has made.", flag_values=values)
    shared.define_model(values)
    shared.define_text(values)
    shared.define_device(values)
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Evaluates tokens with an exported graph and a model's weights."""
    if values.folder is None:
        raise InputError("graph run needs a folder that graph export has made, as in: graph run FOLDER")
    source = shared.choose_one(values, SOURCES)
    with optional_file(values.output) as output, open_model(values) as model:
        ids = read_input(values, source, model, drop_newline=source == "text_file").ids

        import dataclasses

        from synapse_jax.evals.record import Timings, build_record
        from synapse_jax.graph.export_folder import ExportedGraph
        from synapse_jax.runtime.devices import find_device
        from synapse_jax.runtime.exported import ExportedRunner

        graph, device = ExportedGraph(values.folder), find_device(values.device)
        started = time.perf_counter()
        runner = ExportedRunner(model, graph, device, Progress(values.progress, "weights", "tensors"))
        loaded = time.perf_counter()
        found = runner.evaluate(ids, Progress(values.progress, "run", "positions"))
        seconds = time.perf_counter() - loaded
        logits = found.logits
        identities = graph.manifest["identities"]
        result = {
            "graph": {name: graph.manifest[name] for name in ("entry", "module", "versions")},
            "mean_nll": float(found.nll.mean(dtype="float64")),
            "nll": [float(value) for value in found.nll],
            "greedy": found.greedy.tolist(),
            "next_token": None if logits is None else int(logits.argmax()),
            "logits_sha256": None
            if logits is None
            else hashlib.sha256(logits.astype("<f4").tobytes()).hexdigest(),
        }
        record = build_record(
            "graph run",
            arguments=shared.given_arguments(values),
            result=result,
            model=model,
            profile=dataclasses.replace(runner.ir.profile, device=values.device),
            device=device,
            ids=ids,
            evaluated=ids,
            timings=Timings(loaded - started - runner.compile_s, runner.compile_s, seconds, len(ids)),
        )
        digests = {"program": identities["program"]["digest"], "executable": None}
        record["fingerprints"] = {
            "profile": identities["profile"]["digest"],
            "entries": [{**runner.entry.summary(), **digests}],
        }
        save(output, record)
    table = [
        ("entry", str(runner.entry)),
        ("tokens", str(len(ids))),
        ("mean NLL", f"{result['mean_nll']:.6f}"),
        *([] if logits is None else [("next token", str(result["next_token"]))]),
        ("program", digests["program"]),
    ]
    show(values, record, table)
    return 0
