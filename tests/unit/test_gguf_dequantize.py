"""Every tensor type read as float32: the same bits as `gguf` gives for the whole tensor (case 26)."""

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


# Scalar readings of a block, after `dequantize_row_*` of llama.cpp's ggml-quants.c, in float64.


def half(block, at):
    return float(np.frombuffer(bytes(block[at : at + 2]), "<f2")[0])


def nibbles(block, at):
    """32 values of 16 bytes: the low halves, then the high ones."""
    low = [byte & 15 for byte in block[at : at + 16]]
    return low + [byte >> 4 for byte in block[at : at + 16]]


def fifth_bits(block, at):
    word = int.from_bytes(bytes(block[at : at + 4]), "little")
    return [(word >> i & 1) << 4 for i in range(32)]


def q4_0(block):
    return [half(block, 0) * (q - 8) for q in nibbles(block, 2)]


def q4_1(block):
    return [half(block, 0) * q + half(block, 2) for q in nibbles(block, 4)]


def q5_0(block):
    bits = zip(nibbles(block, 6), fifth_bits(block, 2), strict=True)
    return [half(block, 0) * ((q | high) - 16) for q, high in bits]


def q5_1(block):
    bits = zip(nibbles(block, 8), fifth_bits(block, 4), strict=True)
    return [half(block, 0) * (q | high) + half(block, 2) for q, high in bits]


def q8_0(block):
    return [half(block, 0) * (q - 256 if q > 127 else q) for q in block[2:34]]


def scale_min(block, j):
    """6-bit scale and minimum of part j of a K block; their 12 bytes begin at 4."""
    scales = block[4:16]
    if j < 4:
        return scales[j] & 63, scales[j + 4] & 63
    return (
        scales[j + 4] & 15 | scales[j - 4] >> 6 << 4,
        scales[j + 4] >> 4 | scales[j] >> 6 << 4,
    )


def q4_k(block, quants=16, fifth=None):
    out = []
    for j in range(8):
        scale, least = scale_min(block, j)
        for i in range(32):
            byte = block[quants + j // 2 * 32 + i]
            q = byte >> 4 if j % 2 else byte & 15
            if fifth is not None:
                q += (block[fifth + i] >> j & 1) * 16
            out.append(half(block, 0) * scale * q - half(block, 2) * least)
    return out


def q5_k(block):
    return q4_k(block, 48, 16)


def q6_k(block):
    out = []
    for i in range(256):
        part, within = divmod(i, 128)
        quarter, lane = divmod(within, 32)
        low = block[part * 64 + (quarter % 2) * 32 + lane]
        low = low >> 4 if quarter > 1 else low & 15
        high = block[128 + part * 32 + lane] >> 2 * quarter & 3
        scale = block[192 + i // 16]
        out.append(half(block, 208) * (scale - 256 if scale > 127 else scale) * ((low | high << 4) - 32))
    return out


SCALAR = {
    "Q4_0": (q4_0, (0,)), "Q4_1": (q4_1, (0, 2)), "Q5_0": (q5_0, (0,)), "Q5_1": (q5_1, (0, 2)),
    "Q8_0": (q8_0, (0,)), "Q4_K": (q4_k, (0, 2)), "Q5_K": (q5_k, (0, 2)), "Q6_K": (q6_k, (208,)),
    "F16": (lambda block: [half(block, 0)], (0,)),
    "BF16": (lambda block: [float((np.uint32(block[0] | block[1] << 8) << 16).view(np.float32))], ()),
}  # fmt: skip
"""The reading of a block, and where its half-precision factors lie."""


@pytest.mark.parametrize("name", SCALAR)
def test_blocks_mean_what_ggml_says(tmp_path, name):
    kind = next(kind for kind in READABLE if kind.name == name)
    reading, factors = SCALAR[name]
    blocks = random_blocks(kind).reshape(-1, kind.block_bytes)
    random = np.random.RandomState(1)
    for at in factors:  # any bytes would give infinities
        blocks[:, at : at + 2] = random.standard_normal((len(blocks), 1)).astype("<f2").view(np.uint8)
    if name == "BF16":
        blocks[:, 1] = random.choice([0x3F, 0x40, 0xBF, 0xC0], len(blocks))
    with written(tmp_path / "a.gguf", kind, blocks.tobytes()) as file:
        got = file.read("a").reshape(-1)
    expected = np.concatenate([reading(block.tolist()) for block in blocks])
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


def test_types_of_a_real_file_are_decoded_as_gguf_does(gemma_path):
    check_real_types(gemma_path, {"F32", "Q4_K", "Q5_0", "Q6_K", "Q8_0"})


def check_real_types(path, types):
    """The smallest and the largest tensor of each type, up to 2 million elements: equal in every bit."""
    raw_bytes = np.memmap(path, np.uint8, "r")
    with open_gguf(path) as file:
        assert {info.type_name for info in file.tensors.values()} == types
        for name in types:
            infos = [info for info in file.tensors.values() if info.type_name == name]
            infos = sorted((info for info in infos if info.elements <= 2**21), key=lambda info: info.elements)
            for info in (infos[0], infos[-1]):
                stored = raw_bytes[info.offset : info.offset + info.nbytes].reshape(info.shape[0], -1)
                expected = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType(info.type.number))
                got = file.read(info.name)
                assert np.isfinite(got).all() and got.std() > 0, info.name
                np.testing.assert_array_equal(
                    got.view(np.uint32), expected.reshape(info.shape).view(np.uint32)
                )
