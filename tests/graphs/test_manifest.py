"""The checked-in manifests say what the code lowers to.

Each run checks every profile's identity, IR and arguments, and of the programs `LOWERED`: every way through
`graph/`, in a few seconds. `synapse graph verify` lowers all entries for all platforms.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import jax
import pytest

from synapse_jax.errors import InputError
from synapse_jax.graph.manifest import build_manifest, drift, profile_section
from synapse_jax.graph.manifest_file import manifest_files, read_manifest, write_manifest
from synapse_jax.graph.portable import PLATFORMS
from synapse_jax.io.model_file import load
from synapse_jax.ops import elementwise
from synapse_jax.spec.stored import read_spec
from tests.tiny_model import tiny_spec
from tools.update_graphs import MODELS

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
LOWERED = {
    ("smollm2-135m-instruct", "f32", "step 32×1024"): PLATFORMS,
    ("smollm2-135m-instruct", "f32", "decode 1×1024"): ("cpu",),
    ("smollm2-135m-instruct", "yarn-bf16", "step 32×1024"): ("cpu",),
    ("smollm2-135m-instruct", "pages-f32", "decode 1×1024"): ("cpu",),
    ("smollm2-135m-instruct", "f32-kv-bf16", "step 32×1024"): ("cuda",),
    ("gemma-3-270m", "f32", "step 32×1024"): ("cpu",),
    ("gemma-3-270m", "compressed-bf16", "step 32×1024"): ("tpu",),
}


def manifest_of(name: str) -> dict:
    path = GRAPHS / f"jax-{jax.__version__}" / f"{name}.json"
    if not path.exists():
        pytest.skip(f"there are no manifests of jax {jax.__version__}: see tools/update_graphs")
    return read_manifest(path)


def wanted(name: str):
    return lambda profile, entry: LOWERED.get((name, profile, entry), ())


@pytest.mark.parametrize("name", MODELS)
def test_manifest_is_up_to_date(name):
    """Fails when code changes a graph: run tools/update_graphs and review the diff."""
    manifest = manifest_of(name)
    assert drift(manifest, name, wanted(name)) == []
    assert {profile: section["choices"] for profile, section in manifest["profiles"].items()} == MODELS[name]


def test_what_is_lowered_is_in_the_manifests():
    for name, profile, entry in LOWERED:
        programs = manifest_of(name)["profiles"][profile]["entries"][entry]["programs"]
        assert set(programs) == set(PLATFORMS)


@pytest.mark.parametrize("name", MODELS)
def test_manifest_spec_is_the_file_s(name, smol_path, gemma_path):
    with load(name) as model:
        manifest = manifest_of(name)
        assert read_spec(manifest["spec"], name) == model.spec
        assert manifest["spec"] == json.loads(json.dumps(dataclasses.asdict(model.spec)))


def test_manifests_are_small_and_name_no_machine():
    for path in manifest_files(GRAPHS):
        assert path.stat().st_size < 100_000
        assert "executable" not in path.read_text(encoding="utf-8")
        assert path.parent.name == f"jax-{read_manifest(path)['jax']}"


def test_devices_other_than_metal_have_one_program():
    """What differs is the device's compiler, not the module; METAL has no donation in jax."""
    for name in MODELS:
        for section in manifest_of(name)["profiles"].values():
            for entry in section["entries"].values():
                programs = entry["programs"]
                assert programs["cpu"] == programs["cuda"] == programs["tpu"] != programs["METAL"]


def tiny_manifest(**choices) -> dict:
    manifest = build_manifest("tiny", tiny_spec(), {"f32": {}, "other": choices}, lambda *_: ("cpu", "METAL"))
    return json.loads(json.dumps(manifest))


def test_a_changed_op_is_seen(monkeypatch):
    """The manifest test can fail: another epsilon placement is another program."""
    manifest, norm = tiny_manifest(precision="bf16"), elementwise.rms_norm
    only_cpu = lambda *_: ("cpu",)  # noqa: E731
    assert drift(manifest, "tiny", only_cpu) == []
    monkeypatch.setattr(elementwise, "rms_norm", lambda x, w, e: norm(x, w, 2 * e))
    found = drift(manifest, "tiny", only_cpu)
    assert {path.rpartition(".")[2] for path in found} == {"digest", "stablehlo"}
    entries = sum(len(section["entries"]) for section in manifest["profiles"].values())
    assert len(found) == 2 * entries and all(".programs.cpu." in path for path in found)


def test_every_part_of_a_manifest_is_compared():
    manifest = tiny_manifest(rope_scaling="yarn:4:64")
    assert manifest["profiles"]["other"]["ir"] == "as f32"
    assert profile_section(manifest, "other")["ir"] == manifest["profiles"]["f32"]["ir"]
    nothing = lambda *_: ()  # noqa: E731
    assert drift(manifest, "tiny", nothing) == []
    last = f"profiles.f32.entries.{[*manifest['profiles']['f32']['entries']][-1]}"
    for change, path in [
        (lambda new: new["profiles"]["f32"]["ir"].append("x"), "profiles.f32.ir"),
        (lambda new: new["profiles"]["f32"]["params"].pop(), "profiles.f32.params"),
        (lambda new: new["profiles"]["f32"]["profile"].pop(), "profiles.f32.profile"),
        (lambda new: new["profiles"]["f32"]["identity"].update(rope="0"), "profiles.f32.identity.rope"),
        (lambda new: new["profiles"]["f32"]["entries"].popitem(), last),
    ]:  # fmt: skip
        new = copy.deepcopy(manifest)
        change(new)
        assert drift(new, "tiny", nothing) == [path]


def test_a_manifest_reads_back(tmp_path):
    manifest = tiny_manifest()
    write_manifest(tmp_path / "jax" / "tiny.json", manifest)
    assert read_manifest(tmp_path / "jax" / "tiny.json") == manifest
    assert manifest_files(tmp_path) == [tmp_path / "jax" / "tiny.json"]
    assert read_spec(manifest["spec"], "tiny") == tiny_spec()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda m: m.pop("schema"), "schema"),
        (lambda m: m.update(schema="synapse.graphs/9"), "synapse.graphs/9"),
        (lambda m: m.pop("spec"), "spec"),
        (lambda m: m["profiles"].update(f32=3), "profiles.f32"),
        (lambda m: m["profiles"]["f32"].pop("identity"), "profiles.f32.identity"),
        (lambda m: m["profiles"]["f32"].update(ir="as nobody"), "profiles.f32.ir"),
        (lambda m: m["profiles"]["f32"]["entries"].update(x=[]), "entries.x"),
    ],
)
def test_a_bad_manifest_is_named(tmp_path, change, named):
    manifest = tiny_manifest()
    change(manifest)
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InputError, match=f"tiny.json.*{named}"):
        read_manifest(path)


def test_a_bad_spec_or_profile_is_named():
    for change, named in [
        (lambda m: m["spec"].pop("layers"), "spec.*layers"),
        (lambda m: m["spec"].update(more=1), "spec.*more"),
        (lambda m: m["spec"].update(layers="two"), "spec"),
        (lambda m: m["profiles"]["f32"].update(choices={"precision": "f64"}), "f32.*f64"),
        (lambda m: m["profiles"]["f32"].update(choices={"speed": "high"}), "f32.*speed"),
    ]:
        manifest = tiny_manifest()
        change(manifest)
        with pytest.raises(InputError, match=named):
            drift(manifest, "tiny", lambda *_: ())
