"""The checked-in manifest says what the code lowers to."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import pytest

from synapse_jax.graph.manifest import build_manifest, differences, read_spec
from synapse_jax.io.model_file import load
from synapse_jax.ops import elementwise
from tools.update_graphs import MODELS

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"


def read(name: str) -> dict:
    return json.loads((GRAPHS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODELS)
def test_manifest_is_up_to_date(name):
    """Fails when code changes a graph: run tools/update_graphs and review the diff."""
    manifest = read(name)
    if manifest["jax"] != jax.__version__:
        pytest.skip(f"the manifest belongs to jax {manifest['jax']}, this is {jax.__version__}")
    new = build_manifest(name, read_spec(manifest), MODELS[name])
    assert differences(manifest, json.loads(json.dumps(new))) == []


def test_manifest_spec_is_the_file_s(smol_path):
    with load(smol_path) as model:
        manifest = read("smollm2-135m-instruct")
        assert read_spec(manifest) == model.spec
        assert manifest["spec"] == json.loads(json.dumps(dataclasses.asdict(model.spec)))


def test_a_changed_op_is_seen(monkeypatch):
    """The manifest test can fail: another epsilon placement is another program."""
    name = "smollm2-135m-instruct"
    manifest = read(name)
    norm = elementwise.rms_norm
    monkeypatch.setattr(elementwise, "rms_norm", lambda x, w, e: norm(x, w, 2 * e))
    from synapse_jax.graph.compile import lower_on

    lower_on.cache_clear()
    new = build_manifest(name, read_spec(manifest), {"f32": MODELS[name]["f32"]})
    lower_on.cache_clear()
    found = differences(manifest["profiles"]["f32"], json.loads(json.dumps(new["profiles"]["f32"])))
    assert {path.rpartition(".")[2] for path in found} == {"digest", "stablehlo"}
    assert len(found) == 6
