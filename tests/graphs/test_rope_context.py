"""CTX-002 on the real model: the window of a scaled profile, and that it is another profile."""

from __future__ import annotations

import pytest

from synapse_jax.errors import InputError
from synapse_jax.evals.record import runtime_summary
from synapse_jax.graph.fingerprint import explain, profile_identity
from synapse_jax.io.model_file import load
from synapse_jax.ir.build import build
from synapse_jax.spec.rope_scaling import parse_rope_scaling
from synapse_jax.spec.runtime import RuntimeProfile, resolve


def test_yarn_context_extends_limit_exactly(smol_path):
    with load(smol_path) as model:
        spec = model.spec
    scaling = parse_rope_scaling("yarn:4:8192")
    profile = resolve(RuntimeProfile(context=32768, rope=scaling), spec)
    assert resolve(RuntimeProfile(rope=scaling), spec) == profile
    with pytest.raises(
        InputError, match=r"context 32769 is above the 32768 positions of RoPE scaling yarn.*8192"
    ):
        resolve(RuntimeProfile(context=32769, rope=scaling), spec)
    summary = runtime_summary(profile)["rope"]
    assert (summary["type"], summary["factor"], summary["original"]) == ("yarn", 4.0, 8192)
    assert (summary["trained_context"], summary["context_limit"]) == (8192, 32768)
    unscaled = profile_identity(build(spec, resolve(RuntimeProfile(), spec)))
    assert explain(unscaled, profile_identity(build(spec, profile))) == ["rope"]
