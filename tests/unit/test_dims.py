"""Ladders: few shapes, none too small."""

from __future__ import annotations

import pytest

from synapse_jax.dims import ROW_LADDER, capacity_rung, row_bucket


def test_row_buckets():
    assert [row_bucket(rows) for rows in (1, 32, 33, 128, 129, 511, 512)] == [32, 32, 64, 128, 256, 512, 512]
    assert min(ROW_LADDER) >= 32  # below, a row's bits depend on its step
    for rows in (0, 513):
        with pytest.raises(ValueError, match=str(rows)):
            row_bucket(rows)


def test_capacity_rungs():
    wanted = (1, 1024, 1025, 2049, 3072, 3073, 4097, 6145, 8193, 12289, 16385)
    rungs = [capacity_rung(positions, 1 << 20, 256) for positions in wanted]
    assert rungs == [1024, 1024, 2048, 3072, 3072, 4096, 6144, 8192, 12288, 16384, 24576]


def test_capacity_never_passes_the_context_rounded_up_to_a_page():
    assert capacity_rung(1, 100, 256) == 256
    assert capacity_rung(700, 700, 256) == 768
    assert capacity_rung(5000, 5000, 256) == 5120
    assert capacity_rung(1000, 8192, 256) == 1024
    with pytest.raises(ValueError, match="101 positions do not fit in a context of 100"):
        capacity_rung(101, 100, 256)
