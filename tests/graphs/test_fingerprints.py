"""Identities: stable where nothing changed, different and explainable where something did."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import jax
import pytest

from synapse_jax.graph.compile import lower
from synapse_jax.graph.entry import Entry, abstract_params, entry_for
from synapse_jax.graph.fingerprint import executable_identity, explain, normalised, profile_identity
from synapse_jax.ir.build import build
from synapse_jax.spec.rope import unscaled_profile
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.tiny import write_tiny
from tests.tiny_model import tiny_spec


def ir_of(profile: RuntimeProfile | None = None, **changes):
    spec = dataclasses.replace(tiny_spec(), **changes)
    return build(spec, resolve(profile or RuntimeProfile(), spec))


def program_of(ir, name="step", rows=32, capacity=256):
    return lower(ir, Entry(name, rows, capacity)).program


@pytest.fixture(scope="module")
def base_ir():
    return ir_of()


@pytest.fixture(scope="module")
def base_program(base_ir):
    return program_of(base_ir)


def test_profile_identity_names_the_part_that_changed(base_ir):
    base = profile_identity(base_ir)
    rope = unscaled_profile(base_ir.spec)
    for changed, part in [
        (ir_of(RuntimeProfile(precision="bf16")), ["precision"]),
        (ir_of(RuntimeProfile(page_size=64)), ["page_size"]),
        (ir_of(RuntimeProfile(attention="pages:budget=32,window=16")), ["ir", "attention"]),
        (ir_of(RuntimeProfile(rope=dataclasses.replace(rope, base=5e5))), ["rope"]),
        (ir_of(RuntimeProfile(rope=dataclasses.replace(rope, original=100))), ["rope"]),
        (ir_of(layers=3), ["ir"]),
        (ir_of(norm_epsilon=1e-6), ["ir"]),
    ]:
        assert explain(base, profile_identity(changed)) == part
        assert base.digest != profile_identity(changed).digest


def test_profile_identity_knows_windows_and_the_table_of_local_layers():
    window = dict(window=8, window_layers=(True, False))
    base = profile_identity(ir_of(**window))
    for changes, part in [
        (window | {"window": 9}, ["ir"]),
        (window | {"window_layers": (False, True)}, ["ir"]),
        (window | {"local_rope_base": 1e3}, ["ir", "rope"]),
    ]:
        assert explain(base, profile_identity(ir_of(**changes))) == part
    local = [profile_identity(ir_of(**window, local_rope_base=b)) for b in (1e3, 2e3)]
    assert explain(*local) == ["rope"]


def test_profile_identity_holds_no_context_and_no_device(base_ir):
    for profile in (RuntimeProfile(context=100), RuntimeProfile(device="cpu:0")):
        assert profile_identity(ir_of(profile)) == profile_identity(base_ir)


def test_program_identity_follows_shapes_and_not_the_profile_of_others(base_ir, base_program):
    assert program_of(ir_of()) == base_program
    assert explain(base_program, program_of(base_ir, rows=64)) == ["rows", "stablehlo"]
    assert explain(base_program, program_of(base_ir, capacity=512)) == ["capacity", "stablehlo"]
    assert "stablehlo" in explain(base_program, program_of(ir_of(ffn_width=128)))
    # cos and sin rows are arguments: another rope leaves the module alone.
    rope = dataclasses.replace(unscaled_profile(base_ir.spec), base=5e5)
    assert explain(base_program, program_of(ir_of(RuntimeProfile(rope=rope)))) == ["rope"]


def test_weights_are_arguments(base_ir):
    """No weight is a constant of the module, so its values cannot change an identity."""
    lowered = lower(base_ir, entry_for(base_ir, "step", 32))
    constants = [line for line in lowered.stablehlo.splitlines() if "stablehlo.constant" in line]
    assert constants and max(map(len, constants)) < 2000
    signature = next(line for line in lowered.stablehlo.splitlines() if "func.func public @main" in line)
    assert signature.count("%arg") >= len(abstract_params(base_ir))


def test_executable_identity_adds_the_machine(base_program, monkeypatch):
    device = jax.devices("cpu")[0]
    base = executable_identity(base_program, device)
    assert set(dict(base_program.parts)) < set(dict(base.parts))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    assert explain(base, executable_identity(base_program, device)) == ["xla_flags"]


def test_the_module_name_does_not_count():
    assert normalised("module @jit_step attributes {}\nmodule @x") == normalised(
        "module @f attributes {}\nmodule @x"
    )


def test_identities_are_the_same_in_other_processes(tmp_path):
    """Another hash seed and another folder change nothing; another precision does."""
    path = tmp_path / "tiny.gguf"
    write_tiny(path)
    digests = []
    for seed, folder, precision in [("1", tmp_path, "f32"), ("2", "/", "f32"), ("3", "/", "bf16")]:
        command = [sys.executable, "-m", "synapse_jax", "graph", "list", "--json"]
        command += ["--model", str(path), "--precision", precision]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=True
        )
        digests.append(json.loads(done.stdout)["fingerprints"])
    assert digests[0] == digests[1]
    assert digests[0]["profile"] != digests[2]["profile"]
    for one, other in zip(digests[0]["entries"], digests[2]["entries"], strict=True):
        assert one["program"] != other["program"] and one["executable"] != other["executable"]
