"""The unscaled rotary table."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from synapse_jax.io.model_file import load
from synapse_jax.spec.rope import RopeProfile, unscaled_profile
from synapse_jax.spec.rope_table import rope_rows

SMOLLM2_TABLE_SHA256 = "ad98b906f8857e64238a58f768b64bc93baffba62bddc76e84a478452fae7de0"
"""Of cos, then sin, float32 little endian, positions 0 … 8191. New profile types never change it."""


def profile(base: float, size: int) -> RopeProfile:
    return RopeProfile("none", base, size, 1.0, 8192, 8192)


@pytest.mark.parametrize(("base", "d"), [(1e4, 128), (1e5, 64), (1e6, 128), (10000.0, 32)])
def test_unscaled_frequencies_stay_bitwise(base, d):
    p = np.arange(4096)
    cos, sin = rope_rows(profile(base, d), p)
    for i in range(d // 2):
        assert np.array_equal(cos[:, i], np.float32(np.cos(p * base ** (-2 * i / d))))
        assert np.array_equal(sin[:, i], np.float32(np.sin(p * base ** (-2 * i / d))))


def test_smollm2_table_has_its_golden_digest(smol_path):
    with load(smol_path) as model:
        rope = unscaled_profile(model.spec)
    cos, sin = rope_rows(rope, np.arange(rope.context_limit))
    assert cos.dtype == sin.dtype == np.float32
    assert hashlib.sha256(cos.tobytes() + sin.tobytes()).hexdigest() == SMOLLM2_TABLE_SHA256


def test_a_row_depends_on_its_position_alone():
    rope = profile(1e5, 64)
    whole, _ = rope_rows(rope, np.arange(100))
    some, _ = rope_rows(rope, np.array([99, 3]))
    assert np.array_equal(some, whole[[99, 3]])
