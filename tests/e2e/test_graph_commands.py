"""`synapse graph`: what it prints, and its exit codes."""

from __future__ import annotations

import json

import pytest

from synapse_jax.cli.entries import NAMES
from synapse_jax.graph.compile import GRAPHS
from synapse_jax.graph.entry import ENTRY_NAMES
from synapse_jax.graph.manifest import build_manifest
from synapse_jax.graph.manifest_file import write_manifest
from tests.e2e.conftest import as_argument, some_ids
from tests.tiny_model import tiny_spec


def test_the_flag_takes_every_entry():
    assert NAMES == ENTRY_NAMES


def test_list_filters_entries_and_says_what_is_compiled(synapse, tiny):
    GRAPHS.clear()  # of other tests
    record = synapse("graph", "list", "--model", tiny, "--rows", 64, "--json").record
    names = [(e["entry"], e["rows"], e["capacity"]) for e in record["result"]["entries"]]
    assert names == [("step", 64, 256), ("logits", 64, 256)]
    assert [e["compiled"] for e in record["result"]["entries"]] == [False, False]
    synapse("graph", "show", "--model", tiny, "--rows", 64)
    table = synapse("graph", "list", "--model", tiny, "--rows", 64).out
    assert "logits 64×256" in table and table.count(" not compiled") == 1


def test_show_prints_costs_tables_and_modules(synapse, tiny):
    given = ("graph", "show", "--model", tiny, "--rows", 32)
    text = synapse(*given).out
    for part in (
        "layers 0…1",
        "the whole",
        "temporary_bytes",
        "params['layers.0…1.",
        " of 64 positions",
        "donated",
    ):
        assert part in text
    assert "temporary_bytes" not in synapse(*given, "--no-compile").out
    assert synapse(*given, "--stablehlo").out.startswith("module @")
    assert synapse(*given, "--hlo").out.startswith("HloModule")
    record = synapse(*given, "--stablehlo", "--hlo", "--json").record["result"]
    assert record["hlo"].startswith("HloModule") and record["stablehlo"].startswith("module @")


def test_diff_names_parts_and_its_exit_code_says_whether_there_are_any(synapse, tiny):
    given = ("graph", "diff", "--model", tiny, "--entry", "step", "--rows", 32)
    assert synapse(*given, "", "").code == 0
    found = synapse(*given, "", "kv-dtype=bf16", "--json")
    assert found.code == 1
    differences = json.loads(found.out)["result"]["differences"]
    assert [(d["where"], d["part"]) for d in differences] == [
        ("profile", "kv_dtype"),
        ("step 32×256", "arguments"),
        ("step 32×256", "stablehlo"),
    ]
    assert differences[0]["lines"][-2:] == ["-kv_dtype f32", "+kv_dtype bf16"]
    assert not differences[2]["lines"]
    shown = synapse(*given, "", "kv-dtype=bf16", "--stablehlo").out
    assert "xui16>" in shown and "-kv_dtype f32" in shown


def test_verify_names_what_moved_and_other_versions(synapse, tmp_path):
    manifest = build_manifest("tiny", tiny_spec(), {"f32": {}})
    path = tmp_path / "jax" / "tiny.json"
    write_manifest(path, manifest)
    given = ("graph", "verify", "--graphs", tmp_path, "--progress", "none")
    assert synapse(*given).out.split(maxsplit=1)[1] == "the same\n"
    manifest["profiles"]["f32"]["entries"]["step 32×256"]["programs"]["tpu"]["stablehlo"] = "0"
    write_manifest(path, manifest)
    moved = synapse(*given)
    assert moved.code == 1 and "moved: profiles.f32.entries.step 32×256.programs.tpu.stablehlo" in moved.out
    manifest["jax"] = "0.0.1"
    write_manifest(path, manifest)
    other = synapse(*given)
    assert other.code == 0 and "of jax 0.0.1, not compared" in other.out
    path.write_text("{", encoding="utf-8")
    assert str(path) in synapse(*given).refusal


def test_a_manifest_is_a_side_of_diff(synapse, tmp_path):
    path = tmp_path / "tiny.json"
    profiles = {"f32": {}, "pages": {"attention": "pages:budget=32,window=16"}}
    write_manifest(path, build_manifest("tiny", tiny_spec(), profiles, lambda *_: ("cpu",)))
    assert synapse("graph", "diff", path, path).code == 0
    found = synapse("graph", "diff", f"{path}:f32", f"{path}:pages", "--stablehlo")
    assert found.code == 1 and "-attention dense" in found.out and "StableHLO" in found.out
    assert "nobody" in synapse("graph", "diff", f"{path}:nobody", path).refusal
    assert "profiles" in synapse("graph", "diff", f"{path}:f32", path).refusal


@pytest.mark.parametrize("entry", ["step"])
def test_export_and_run_give_what_score_gives(synapse, tiny, tmp_path, entry):
    folder, ids = tmp_path / "graph", some_ids(40)
    exported = synapse("graph", "export", folder, "--model", tiny, "--rows", 32, "--json").record
    ran = synapse("graph", "run", folder, "--model", tiny, "--tokens", as_argument(ids), "--json").record
    assert ran["fingerprints"] == exported["fingerprints"]
    trace = tmp_path / "trace"
    scored = ("score", "--model", tiny, "--tokens", as_argument(ids), "--context", 40, "--score-last", 39)
    synapse(*scored, "--kernels", "xla", "--trace", trace)
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [line["nll"] for line in lines if "nll" in line] == ran["result"]["nll"]
    again = synapse("graph", "export", folder, "--model", tiny, "--rows", 32)
    assert str(folder) in again.refusal
    (folder / "graph.jaxexport").write_bytes(b"cut")
    bad = synapse("graph", "run", folder, "--model", tiny, "--tokens", as_argument(ids))
    assert "3 bytes" in bad.refusal
