"""Exported graphs: the session's bits, the same bytes anywhere, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import synapse_jax as sj
from synapse_jax.errors import InputError
from synapse_jax.graph.describe import argument_list
from synapse_jax.graph.entry import abstract_arguments, entry_for
from synapse_jax.graph.export import export_entry
from synapse_jax.graph.export_folder import MANIFEST, MODULE, ExportedGraph, write_exported
from synapse_jax.runtime.exported import ExportedRunner
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

IDS = np.random.default_rng(5).integers(0, 256, 75)
CASES = {
    "dense": ({}, "step", "step"),
    "bf16": ({"precision": "bf16", "kv_dtype": "bf16"}, "step", "step"),
    "window": ({"attention": "window:16"}, "step", "step"),
    "compressed": ({"attention": "compressed:window=16,block=4"}, "step", "step"),
    "decode": ({}, "decode", "decode"),
    "pages": ({"attention": "pages:budget=32,window=16"}, "decode", "decode"),
}
"""(choices, the exported entry, the entry that the session uses)."""


def exported(folder, entry: str, platforms=("cpu",), **choices):
    model = TinyModel(Tiny(context=256))
    session = sj.Session(model, sj.RuntimeProfile(page_size=16, kernels="xla", **choices), ready=[])
    rows = 32 if entry == "step" else 1
    manifest = write_exported(str(folder), session.ir, entry_for(session.ir, entry, rows), platforms)
    return model, session, manifest


def runner(model, folder) -> ExportedRunner:
    return ExportedRunner(model, ExportedGraph(str(folder)), jax.devices("cpu")[0])


@pytest.mark.parametrize("case", CASES)
def test_an_exported_graph_gives_the_session_s_bits(tmp_path, case):
    choices, entry, _ = CASES[case]
    model, session, manifest = exported(tmp_path / "graph", entry, ("cpu", "cuda", "tpu"), **choices)
    found = runner(model, tmp_path / "graph").evaluate(IDS)
    scores = session.score(IDS, 1, rows=512 if entry == "step" else 1)
    assert found.nll.tobytes() == scores.nll.tobytes()
    assert found.greedy.tolist() == scores.greedy.tolist()
    if entry == "step":
        session.reset()
        assert found.logits is not None and found.logits.tobytes() == session.step(IDS).tobytes()
    assert manifest["identities"]["profile"]["digest"] == session.identity.digest
    program = {e.entry.name: e.program.digest for e in session.compiled_entries if e.entry.rows <= 32}
    assert manifest["identities"]["program"]["digest"] == program[entry]


def test_the_weights_are_the_model_s_own(tmp_path):
    """A test that the one before it can fail: other weights give other numbers."""
    _, session, _ = exported(tmp_path / "graph", "step")
    other = runner(TinyModel(Tiny(context=256, seed=9)), tmp_path / "graph").evaluate(IDS)
    assert not np.array_equal(other.nll, session.score(IDS, 1).nll)


def test_whoever_has_jax_alone_can_call_it(tmp_path):
    """The arguments are plain arrays in the order of the manifest."""
    _, session, manifest = exported(tmp_path / "graph", "step")
    entry = entry_for(session.ir, "step", 32)
    module = jax.export.deserialize(bytearray((tmp_path / "graph" / MODULE).read_bytes()))
    arrays = [np.zeros(a["shape"], a["dtype"]) for a in manifest["arguments"]]
    results = module.call(*arrays)
    assert [[str(r.dtype), list(r.shape)] for r in results] == [
        [r["dtype"], r["shape"]] for r in manifest["results"]
    ]
    assert len(arrays) == len(jax.tree.leaves(abstract_arguments(session.ir, entry)))
    assert manifest["arguments"] == argument_list(session.ir, entry)


def test_bytes_are_the_same_in_every_process_and_name_no_folder(tmp_path):
    _, session, _ = exported(tmp_path / "graph", "step")
    here = (tmp_path / "graph" / MODULE).read_bytes()
    script = tmp_path / "elsewhere.py"
    script.write_text(
        "import sys\nfrom tests.graphs.test_export import exported\nexported(sys.argv[1], 'step')\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    subprocess.run(
        [sys.executable, str(script), str(tmp_path / "there")],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": root},
        cwd="/",
        check=True,
    )
    assert (tmp_path / "there" / MODULE).read_bytes() == here
    assert root.encode() not in here and b".py" not in here
    assert jax.config.jax_traceback_in_locations_limit != 0
    assert export_entry(session.ir, entry_for(session.ir, "step", 32), ["cpu"]) == here


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "graph"
    exported(folder, "step")
    return folder


def change(manifest: dict, path: str, value) -> None:
    *outer, last = path.split(".")
    for name in outer:
        manifest = manifest[name]
    if value is None:
        del manifest[last]
    else:
        manifest[last] = value


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("schema", "synapse.exported-graph/9", "exported-graph/9"),
        ("module", None, "module"),
        ("module.bytes", 7, "7"),
        ("module.sha256", "0", "sha256"),
        ("runtime.kv_dtype", "f8", "f8"),
        ("runtime.rope", 3, "RopeProfile"),
        ("runtime.page_size", None, "page_size"),
        ("entry.rows", 33, "33"),
        ("entry.capacity", 7, "7"),
        ("entry.sequences", 4, "4 sequences"),
        ("identities.profile.parts.ir", "0", "ir"),
        ("runtime.precision", "bf16", "precision"),
    ],
)
def test_a_bad_manifest_is_named(good, tmp_path, path, value, named):
    folder = tmp_path / "graph"
    shutil.copytree(good, folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest, path, value)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=rf"(?s){folder}.*{named}"):
        runner(TinyModel(Tiny(context=256)), folder)


def test_a_damaged_module_is_named(good, tmp_path):
    data = (good / MODULE).read_bytes()
    for bad, named in [
        (data[:-100], str(len(data))),
        (b"", "0 bytes"),
        (data[:500] + bytes([data[500] ^ 1]) + data[501:], "sha256"),
        (None, "cannot be read"),
    ]:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(good, folder)
        (folder / MODULE).unlink()
        if bad is not None:
            (folder / MODULE).write_bytes(bad)
        with pytest.raises(InputError, match=named):
            ExportedGraph(str(folder))


def test_another_model_platform_or_length_is_refused(good, tmp_path):
    with pytest.raises(InputError, match="of another model: its ir differ"):
        runner(TinyModel(Tiny(context=256, layers=3)), good)
    with pytest.raises(InputError, match="300 tokens are above the context of 256"):
        runner(TinyModel(Tiny(context=256)), good).evaluate(np.zeros(300, np.int32))
    model, _, _ = exported(tmp_path / "tpu", "step", ("tpu",))
    with pytest.raises(InputError, match="is lowered for tpu, the device is cpu"):
        runner(model, tmp_path / "tpu")
    model, _, _ = exported(tmp_path / "pages", "step", attention="pages:budget=32,window=16")
    with pytest.raises(InputError, match="evaluates no text"):
        runner(model, tmp_path / "pages")
