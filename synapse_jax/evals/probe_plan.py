"""What a copy probe measures: blocks of text, depths, and the random tokens that are planted there."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.evals.score import Protocol
from synapse_jax.io.byte_pieces import BYTE_OF
from synapse_jax.io.vocabulary import NORMAL, USER_DEFINED, Vocabulary

NEEDLE_TOKENS = 8
"""Tokens of a needle, a decoy and the final copy."""
AUTO_DEPTHS = 9
"""Depths of an even sweep, fewer in a block that has fewer."""
MIN_PLANTABLE = 8
"""Fewest ids to draw from. Needle and decoy are drawn alike, and may share a token at a place by chance:
once in 8 then, and rarely in a real vocabulary."""


@dataclasses.dataclass(frozen=True)
class ProbePlan:
    """What is probed, but for the tokens."""

    length: int
    """L, tokens a block; at least 16."""
    blocks: int
    """Blocks of text, each with its own needles."""
    depths: tuple[int, ...]
    """Token indices that needles are asked for at, ascending."""
    seed: int = 0
    """Of the needles and decoys, beside the index of the block."""

    def __post_init__(self):
        if self.length < 2 * NEEDLE_TOKENS:
            raise InputError(
                f"length {self.length} does not hold a needle and its copy: {2 * NEEDLE_TOKENS} is the least"
            )
        for field, least in (("blocks", 1), ("seed", 0)):
            if getattr(self, field) < least:
                raise InputError(f"{field} {getattr(self, field)} is below {least}")
        if any(depth < 0 for depth in self.depths):
            raise InputError(f"depth {min(self.depths)} is below 0")
        if any(a >= b for a, b in itertools.pairwise(self.depths)):
            raise InputError(f"depths {', '.join(map(str, self.depths))} are not ascending and all different")
        if not self.measured:
            raise InputError(
                f"no depth of {', '.join(map(str, self.depths))} is at most {self.last_depth}, where a "
                f"needle still ends before the copy in {self.length} tokens"
            )

    @property
    def last_depth(self) -> int:
        """Deepest index at which a needle ends before the final copy begins."""
        return self.length - 2 * NEEDLE_TOKENS

    @property
    def measured(self) -> tuple[int, ...]:
        """Depths that leave room for the needle before the copy."""
        return tuple(depth for depth in self.depths if depth <= self.last_depth)

    @property
    def skipped(self) -> tuple[int, ...]:
        """Depths with depth + 8 > L − 8."""
        return tuple(depth for depth in self.depths if depth > self.last_depth)

    @property
    def copy_start(self) -> int:
        """Index of the final copy, L − 8."""
        return self.length - NEEDLE_TOKENS

    def cut(self, ids: Sequence[int] | np.ndarray, bos_id: int | None = None) -> np.ndarray:
        """The first tokens as disjoint consecutive blocks: int32 [blocks, L].

        Args:
            ids: the text.
            bos_id: replaces each block's first token, as in the perplexity protocol; None replaces nothing.

        Raises:
            InputError: too few tokens; the numbers are named.
        """
        if len(ids) < self.blocks * self.length:
            raise InputError(
                f"{self.blocks} blocks of {self.length} tokens need {self.blocks * self.length} tokens, "
                f"there are {len(ids)}"
            )
        return Protocol(self.length, bos_id, self.blocks).cut(ids)


def parse_depths(text: str, length: int) -> tuple[int, ...]:
    """Depths as people write them: `0,128,256`, or `auto` for an even sweep from 0 to L − 16.

    Returns:
        Ascending token indices.

    Raises:
        InputError: something other than whole numbers, or one that is there twice.
    """
    if text == "auto":
        return even_depths(length)
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) < 10):
            raise InputError(f"depths {text!r}: {word!r} is not a token index; give 0,128,256 or auto")
    depths = sorted(map(int, words))
    for a, b in itertools.pairwise(depths):
        if a == b:
            raise InputError(f"depths {text!r}: {a} is there twice")
    return tuple(depths)


def even_depths(length: int) -> tuple[int, ...]:
    """Up to 9 depths from 0 to L − 16, evenly spread."""
    last = max(length - 2 * NEEDLE_TOKENS, 0)
    return tuple(sorted({round(last * i / (AUTO_DEPTHS - 1)) for i in range(AUTO_DEPTHS)}))


def plantable_ids(vocabulary: Vocabulary) -> np.ndarray:
    """Ids that needles are drawn from, int32, ascending.

    Tokens that stand for text: no control, unused, unknown or undefined ones, none that begins or ends a text
    whatever its type says, and no byte tokens. In a byte-level vocabulary those are the pieces of one
    character of its alphabet: the ids below 256 where the bytes come first.

    Raises:
        InputError: fewer than 8 are left.
    """
    allowed = np.isin(vocabulary.types, (NORMAL, USER_DEFINED))
    special = {vocabulary.bos_id, vocabulary.eos_id, vocabulary.unknown_id, *vocabulary.stop_ids}
    allowed[[index for index in special if index is not None]] = False
    if vocabulary.byte_level:
        allowed[[vocabulary.ids[character] for character in BYTE_OF if character in vocabulary.ids]] = False
    ids = np.flatnonzero(allowed).astype(np.int32)
    if len(ids) < MIN_PLANTABLE:
        raise InputError(
            f"{len(ids)} of {len(vocabulary.pieces)} tokens of the vocabulary are neither bytes nor control "
            f"nor unused tokens; the copy probe needs {MIN_PLANTABLE}"
        )
    return ids


@dataclasses.dataclass(frozen=True)
class Plant:
    """The random tokens of one depth of one block."""

    block: int
    depth: int
    needle: tuple[int, ...]
    decoy: tuple[int, ...]

    def planted(self, block_L: np.ndarray) -> np.ndarray:
        """The block, int32 [L], with the needle at the depth and again at its end."""
        return self._with(self.needle, block_L)

    def control(self, block_L: np.ndarray) -> np.ndarray:
        """The same with the decoy at the depth: the needle at the end is its first."""
        return self._with(self.decoy, block_L)

    def _with(self, tokens: Sequence[int], block_L: np.ndarray) -> np.ndarray:
        out_L = np.array(block_L, np.int32)
        out_L[self.depth : self.depth + NEEDLE_TOKENS] = tokens
        out_L[-NEEDLE_TOKENS:] = self.needle
        return out_L


def draw_plants(plan: ProbePlan, plantable: np.ndarray) -> list[Plant]:
    """Needle, then decoy, for every depth in ascending order, from one generator a block.

    Args:
        plan: the depths that are skipped draw nothing.
        plantable: ids to draw from, each token by itself.

    Returns:
        A plant for every block and measured depth, block by block.
    """
    plants = []
    for block in range(plan.blocks):
        random = np.random.default_rng([plan.seed, block])
        for depth in plan.measured:
            needle, decoy = (tuple(random.choice(plantable, NEEDLE_TOKENS).tolist()) for _ in range(2))
            plants.append(Plant(block, depth, needle, decoy))
    return plants
