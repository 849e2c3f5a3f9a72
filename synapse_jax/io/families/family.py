"""What a model family tells about its files, and how its weights are laid out there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from synapse_jax.io.gguf import GgufFile
from synapse_jax.spec.model import ModelSpec


@dataclasses.dataclass(frozen=True)
class WeightSource:
    """Where one canonical weight comes from."""

    tensor: str
    """Name in the file."""
    shape: tuple[int, ...]
    """Shape in memory; [out, in] for a linear."""
    paired_heads: int = 0
    """Heads whose rows the file stores as adjacent rotary pairs; 0 where rows are in order."""
    first_row: int = 0
    """Where the weight's rows begin in a fused tensor."""
    stored_rows: int = 0
    """Rows of that fused tensor; 0 where the tensor is the weight."""

    offset: float = 0.0
    """Added to every value: 1 for norms whose files leave it to the code."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the tensor in the file."""
        return (self.stored_rows, *self.shape[1:]) if self.stored_rows else self.shape


@dataclasses.dataclass(frozen=True)
class Layout:
    """A model file understood: its spec and every weight's place."""

    spec: ModelSpec
    weights: dict[str, WeightSource]
    """By canonical name, in the order of the forward pass."""
    warnings: tuple[str, ...]
    """Defaults in force, and keys and tensors that were not used; one line each."""


@dataclasses.dataclass(frozen=True)
class Family:
    """A `general.architecture` that can be loaded."""

    arch: str
    """As the file names it; also the prefix of its metadata keys."""
    read_spec: Callable[[GgufFile, list[str]], ModelSpec]
    """Metadata to spec; appends a line to the list for each default in force."""
    weights: Callable[[ModelSpec], dict[str, WeightSource]]
    """Every weight that the spec needs, by canonical name."""
    keys: frozenset[str] = frozenset()
    """Keys, without the prefix, that this family reads itself or that are known to change nothing."""
    remarks: tuple[str, ...] = ()
    """How keys begin, without the prefix, that change nothing whatever follows."""


def unpair_rows(rows: np.ndarray, heads: int, rotary_size: int) -> np.ndarray:
    """Turns adjacent rotary pairs into half-split ones.

    GGUF of arch `llama` stores row i of a head's rotary half-split order at 2i
    and row i + rotary_size/2 at 2i + 1 (`permute` in llama.cpp's
    `conversion/llama.py`). Rows past `rotary_size` are not rotated and stay.

    Args:
      rows: [heads * H, ...], a query or key projection or its bias.
      heads: its own head count: N for queries, K for keys.
      rotary_size: leading dimensions of a head that are rotated; even.

    Returns:
      a new array of the same shape and dtype.
    """
    by_head = rows.reshape(heads, rows.shape[0] // heads, *rows.shape[1:])
    out = by_head.copy()
    half = rotary_size // 2
    out[:, :half] = by_head[:, 0:rotary_size:2]
    out[:, half:rotary_size] = by_head[:, 1:rotary_size:2]
    return out.reshape(rows.shape)
