"""What each identity follows: a choice that changes numbers, a shape, or nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from synapse_jax.graph.compile import lower
from synapse_jax.graph.entry import entry_for
from synapse_jax.graph.fingerprint import explain, profile_identity
from synapse_jax.ir.build import build
from synapse_jax.spec.rope_scaling import RopeScaling, parse_rope_scaling
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.tiny import write_tiny
from tests.tiny_model import tiny_spec

PACKAGE = Path(__file__).resolve().parents[2] / "synapse_jax"
BASE = RuntimeProfile(rope=parse_rope_scaling("yarn:4:64"), attention="pages:budget=32,window=16")
"""Every choice of the matrix is one step away from it."""

PROFILE_CHANGES = {
    "RoPE type": ({"rope": RopeScaling("linear", factor=4.0, original=64)}, ["rope"]),
    "RoPE none": ({"rope": RopeScaling()}, ["rope"]),
    "factor": ({"rope": parse_rope_scaling("yarn:2:64")}, ["rope"]),
    "original": ({"rope": parse_rope_scaling("yarn:4:32")}, ["rope"]),
    "attention policy": ({"attention": "dense"}, ["ir", "attention"]),
    "attention option": ({"attention": "pages:budget=48,window=16"}, ["ir", "attention"]),
    "KV dtype bf16": ({"kv_dtype": "bf16"}, ["kv_dtype"]),
    "KV dtype f16": ({"kv_dtype": "f16"}, ["kv_dtype"]),
    "page size": ({"page_size": 128}, ["page_size"]),
    "precision": ({"precision": "bf16"}, ["precision"]),
}
"""(what changes of the profile, the parts of the identity that follow)."""
NOT_IN_THE_MODULE = ("RoPE type", "RoPE none", "factor", "original", "attention option")
"""cos and sin are arguments: of RoPE a module knows nothing. A prompt's step reads no budget."""


def ir_of(profile: RuntimeProfile = BASE, **changes):
    spec = dataclasses.replace(tiny_spec(), trained_context=64, **changes)
    return build(spec, resolve(profile, spec))


def program_of(ir, name="step", rows=32, capacity=None):
    return lower(ir, entry_for(ir, name, rows, capacity)).program


@pytest.fixture(scope="module")
def base():
    return ir_of()


@pytest.fixture(scope="module")
def base_program(base):
    return program_of(base)


@pytest.mark.parametrize("what", PROFILE_CHANGES)
def test_profile_and_program_follow_every_choice(base, base_program, what):
    change, parts = PROFILE_CHANGES[what]
    changed = ir_of(dataclasses.replace(BASE, **change))
    one, other = profile_identity(base), profile_identity(changed)
    assert one.digest != other.digest and explain(one, other) == parts
    program = program_of(changed)
    assert explain(base_program, program) == parts + ([] if what in NOT_IN_THE_MODULE else ["stablehlo"])
    assert base_program.digest != program.digest


def test_all_choices_have_profiles_of_their_own(base):
    changed = [
        profile_identity(ir_of(dataclasses.replace(BASE, **change))) for change, _ in PROFILE_CHANGES.values()
    ]
    assert len({identity.digest for identity in (profile_identity(base), *changed)}) == 1 + len(changed)


def test_program_follows_rows_capacity_and_entry_and_profile_none_of_them():
    ir = ir_of(dataclasses.replace(BASE, rope=parse_rope_scaling("linear:40")))
    one = program_of(ir)
    assert explain(one, program_of(ir, rows=64)) == ["rows", "stablehlo"]
    assert explain(one, program_of(ir, capacity=2048)) == ["capacity", "stablehlo"]
    assert explain(one, program_of(ir, "decode", 1)) == ["entry", "rows", "stablehlo"]


def test_program_follows_the_shape_of_a_weight(base_program):
    """A wider FFN is another shape of two weights, and of nothing else that an entry takes."""
    found = explain(base_program, program_of(ir_of(ffn_width=128)))
    assert found == ["ir", "stablehlo"]


def listed(path: Path, *, package: Path = PACKAGE.parent, folder: Path | str = "/", seed: str = "0") -> dict:
    """The identities that a process of its own lists."""
    command = [sys.executable, "-m", "synapse_jax", "graph", "list", "--json", "--model", str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(package)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["fingerprints"]


def test_nothing_follows_weight_values_processes_places_or_lines(tmp_path):
    """Another seed of weights, another hash seed, model and code in other folders, all lines moved."""
    path = tmp_path / "a.gguf"
    write_tiny(path, seed=1)
    expected = listed(path, seed="1")
    (tmp_path / "there").mkdir()
    other = tmp_path / "there" / "b.gguf"
    write_tiny(other, seed=2)
    assert path.read_bytes() != other.read_bytes()
    moved = tmp_path / "there" / "code"
    shutil.copytree(PACKAGE, moved / "synapse_jax", ignore=shutil.ignore_patterns("__pycache__"))
    for source in moved.rglob("*.py"):
        source.write_text("# moved\n\n\n" + source.read_text(encoding="utf-8"), encoding="utf-8")
    assert listed(other, package=moved, folder=tmp_path, seed="2") == expected
