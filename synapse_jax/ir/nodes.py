"""The Model IR: a model as blocks of named operations on shaped values, frozen data without jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from synapse_jax.spec.model import ModelSpec
from synapse_jax.spec.rope import RopeProfile, local_profile
from synapse_jax.spec.rope_table import rope_rows
from synapse_jax.spec.runtime import RuntimeProfile

Attribute = int | float | str


@dataclasses.dataclass(frozen=True)
class Value:
    """A named intermediate result. Axis sizes are numbers or letters (`T`) that an entry decides."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class Weight:
    """A named weight argument; within a layer the name is relative to the layer."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[str, ...] = ()
    """Names of the model's weights that are stacked along the first axis to make it; none means itself."""
    layers: int = 0
    """Layers whose weights it holds along an axis before the others, where layers are a loop; else 0."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One operation: values and weights in, one value out, constants as sorted attributes."""

    op: str
    inputs: tuple[Value, ...]
    weights: tuple[Weight, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    output: Value

    def attribute(self, name: str) -> Attribute:
        """The constant of that name.

        Raises:
            KeyError: the node has none of that name.
        """
        return dict(self.attributes)[name]


@dataclasses.dataclass(frozen=True)
class Block:
    """Nodes that run in order. A layer's block is the same value for every layer that is built alike."""

    name: str
    nodes: tuple[Node, ...]


@dataclasses.dataclass(frozen=True)
class ModelIR:
    """A whole model under one runtime profile, ready to be lowered.

    `embed` turns tokens into the residual stream, each of `layers` transforms it, `head` turns the
    rows that are asked for into logits.
    """

    spec: ModelSpec
    profile: RuntimeProfile
    embed: Block
    layers: tuple[Block, ...]
    head: Block

    @property
    def rope_tables(self) -> tuple[RopeProfile, ...]:
        """The profiles of the RoPE tables that layers rotate by: the model's, then that of local layers."""
        rope = self.profile.rope
        assert isinstance(rope, RopeProfile)
        return (rope,) if self.spec.local_rope_base is None else (rope, local_profile(self.spec))

    @property
    def context_limit(self) -> int:
        """Positions of every RoPE table: as many as the model's own profile is good for.

        A local layer sees distances within its sliding window only, so its unscaled table has no limit of
        its own, and goes as far as a scaled one.
        """
        return self.rope_tables[0].context_limit

    def angle_rows(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin of each RoPE table at int positions [T]: float32 [Z, T, R] each.

        Raises:
            IndexError: a position lies outside 0 … context_limit − 1.
        """
        if positions.size and not 0 <= positions.min() <= positions.max() < self.context_limit:
            raise IndexError(
                f"positions {positions.min()} … {positions.max()} lie outside the RoPE tables of "
                f"{self.context_limit} positions"
            )
        cos, sin = zip(*(rope_rows(table, positions) for table in self.rope_tables), strict=True)
        return np.stack(cos), np.stack(sin)

    def weights(self) -> Iterator[Weight]:
        """Every weight once, with full names and at least one part, in the order of use."""
        seen = set()
        for prefixes, block in self._weighted_blocks():
            for node in block.nodes:
                for weight in node.weights:
                    name = scoped_name(prefixes[0], weight.name)
                    if name not in seen:
                        seen.add(name)
                        own = weight.parts or (weight.name,)
                        parts = tuple(scoped_name(prefix, part) for prefix in prefixes[1:] for part in own)
                        layers = self.spec.layers if prefixes[0] == "layers" else 0
                        shape = (layers, *weight.shape) if layers else weight.shape
                        yield Weight(name, shape, parts, layers)

    def _weighted_blocks(self) -> Iterator[tuple[tuple[str, ...], Block]]:
        """Blocks with the prefix of their weight arguments, then those of the model's weights in them."""
        if self.profile.layers != "scan":
            yield from (((prefix, prefix), block) for prefix, block in self.scoped_blocks())
            return
        yield ("", ""), self.embed
        yield ("layers", *(f"layers.{index}" for index in range(len(self.layers)))), self.layers[0]
        yield ("", ""), self.head

    def scoped_blocks(self) -> Iterator[tuple[str, Block]]:
        """Blocks in execution order, each with the prefix of its weight names."""
        yield "", self.embed
        for index, block in enumerate(self.layers):
            yield f"layers.{index}", block
        yield "", self.head


def scoped_name(prefix: str, name: str) -> str:
    """Full name of a weight that a block calls `name`."""
    return f"{prefix}.{name}" if prefix else name
