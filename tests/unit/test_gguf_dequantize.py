"""Every tensor type read as float32: the same bits as `gguf` gives for the whole tensor."""

import gguf
import numpy as np
import pytest

from synapse_jax.errors import InputError
from synapse_jax.io import gguf as gguf_io
from synapse_jax.io import gguf_types
from synapse_jax.io.gguf import open_gguf
from tests import raw_gguf as raw

READABLE = [kind for kind in gguf_types.TENSOR_TYPES.values() if kind.readable]
ROWS, COLUMNS = 5, 512


def written(path, kind, data):
    """A file with one tensor "a" of ROWS rows of COLUMNS."""
    path.write_bytes(raw.build(tensors=[raw.Tensor("a", (COLUMNS, ROWS), kind.number)], data=data))
    return open_gguf(path)


def random_blocks(kind):
    """Any bytes: scales of every size, infinities and NaN too."""
    return np.random.RandomState(kind.number).randint(0, 256, (ROWS, kind.row_bytes(COLUMNS)), np.uint8)


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("chunk", [256, gguf_io._CHUNK])
def test_read_equals_gguf_bit_by_bit(tmp_path, monkeypatch, kind, chunk):
    monkeypatch.setattr(gguf_io, "_CHUNK", chunk)
    blocks = random_blocks(kind)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(kind.number))
    with written(tmp_path / "a.gguf", kind, blocks.tobytes()) as file:
        got = file.read("a")
    assert got.dtype == np.float32 and got.shape == (ROWS, COLUMNS)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantized_weights_come_back_close(tmp_path, name):
    kind = next(kind for kind in READABLE if kind.name == name)
    weights = np.random.RandomState(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    blocks = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[name])
    with written(tmp_path / "a.gguf", kind, blocks.tobytes()) as file:
        error = np.abs(file.read("a") - weights).max()
    assert 0 < error < {"F16": 2e-3, "BF16": 2e-2, "Q8_0": 2e-2}.get(name, 0.5)


def test_table_agrees_with_gguf():
    for number, (block, size) in gguf.constants.GGML_QUANT_SIZES.items():
        kind = gguf_types.TENSOR_TYPES[int(number)]
        assert (kind.name, kind.block, kind.block_bytes) == (number.name, block, size)
    assert not gguf_types.TENSOR_TYPES.keys() & gguf_types.REMOVED_TENSOR_TYPES.keys()


@pytest.mark.parametrize(
    "kind",
    [kind for kind in gguf_types.TENSOR_TYPES.values() if not kind.readable],
    ids=lambda kind: kind.name,
)
def test_type_that_cannot_be_read_is_a_named_refusal(tmp_path, kind):
    data = random_blocks(kind)
    if kind.name != "Q2_0":  # newer than this gguf
        with pytest.raises(NotImplementedError):
            gguf.quants.dequantize(data, gguf.GGMLQuantizationType(kind.number))
    with written(tmp_path / "a.gguf", kind, data.tobytes()) as file:
        problem = rf"a\.gguf: tensor 'a': has type {kind.name} \(number {kind.number}\)"
        with pytest.raises(InputError, match=problem):
            file.read("a")
        with pytest.raises(InputError, match="tensor 'b': is missing"):
            file.read("b")
