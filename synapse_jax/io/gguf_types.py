"""The number formats of GGUF: metadata value types and tensor types.

Numbers and block sizes follow `ggml.h` and `ggml-common.h` of llama.cpp.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class ValueType:
    """A scalar type of metadata values."""

    name: str
    """As error messages call it."""
    dtype: np.dtype
    """Little endian, as the file stores it."""


STRING = 8
ARRAY = 9
BOOL = 7

SCALARS: dict[int, ValueType] = {
    0: ValueType("uint8", np.dtype("<u1")),
    1: ValueType("int8", np.dtype("<i1")),
    2: ValueType("uint16", np.dtype("<u2")),
    3: ValueType("int16", np.dtype("<i2")),
    4: ValueType("uint32", np.dtype("<u4")),
    5: ValueType("int32", np.dtype("<i4")),
    6: ValueType("float32", np.dtype("<f4")),
    BOOL: ValueType("bool", np.dtype("<u1")),
    10: ValueType("uint64", np.dtype("<u8")),
    11: ValueType("int64", np.dtype("<i8")),
    12: ValueType("float64", np.dtype("<f8")),
}


@dataclasses.dataclass(frozen=True)
class TensorType:
    """How a tensor's elements are stored."""

    number: int
    """The type's number in the file."""
    name: str
    """As ggml names it, for example `Q4_1`."""
    block: int
    """Elements a block; a row is a whole number of blocks."""
    block_bytes: int
    """Bytes a block."""
    readable: bool = True
    """Whether it can be read as float32: `gguf` dequantizes it, or numpy converts it."""

    def row_bytes(self, elements: int) -> int:
        """Bytes of `elements` elements, a multiple of the block."""
        return elements // self.block * self.block_bytes


TENSOR_TYPES: dict[int, TensorType] = {
    kind.number: kind
    for kind in (
        TensorType(0, "F32", 1, 4),
        TensorType(1, "F16", 1, 2),
        TensorType(2, "Q4_0", 32, 18),
        TensorType(3, "Q4_1", 32, 20),
        TensorType(6, "Q5_0", 32, 22),
        TensorType(7, "Q5_1", 32, 24),
        TensorType(8, "Q8_0", 32, 34),
        TensorType(9, "Q8_1", 32, 40, readable=False),
        TensorType(10, "Q2_K", 256, 84),
        TensorType(11, "Q3_K", 256, 110),
        TensorType(12, "Q4_K", 256, 144),
        TensorType(13, "Q5_K", 256, 176),
        TensorType(14, "Q6_K", 256, 210),
        TensorType(15, "Q8_K", 256, 292, readable=False),
        TensorType(16, "IQ2_XXS", 256, 66),
        TensorType(17, "IQ2_XS", 256, 74),
        TensorType(18, "IQ3_XXS", 256, 98),
        TensorType(19, "IQ1_S", 256, 50),
        TensorType(20, "IQ4_NL", 32, 18),
        TensorType(21, "IQ3_S", 256, 110),
        TensorType(22, "IQ2_S", 256, 82),
        TensorType(23, "IQ4_XS", 256, 136),
        TensorType(24, "I8", 1, 1, readable=False),
        TensorType(25, "I16", 1, 2, readable=False),
        TensorType(26, "I32", 1, 4, readable=False),
        TensorType(27, "I64", 1, 8, readable=False),
        TensorType(28, "F64", 1, 8, readable=False),
        TensorType(29, "IQ1_M", 256, 56),
        TensorType(30, "BF16", 1, 2),
        TensorType(34, "TQ1_0", 256, 54),
        TensorType(35, "TQ2_0", 256, 66),
        TensorType(39, "MXFP4", 32, 17),
        TensorType(40, "NVFP4", 64, 36),
        TensorType(41, "Q1_0", 128, 18, readable=False),
        TensorType(42, "Q2_0", 64, 18, readable=False),
    )
}

REMOVED_TENSOR_TYPES: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""Types that files once held and that ggml no longer reads."""
