"""Perplexity by llama-perplexity's protocol."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from synapse_jax.errors import InputError, RunError
from synapse_jax.runtime.results import Scores

if TYPE_CHECKING:  # what is asked for is checked without jax
    from synapse_jax.runtime.session import Progress, Session

MIN_CONTEXT = 3
"""Smallest n_ctx that has a scored target."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How a text is cut into chunks and which targets are scored.

    ⌊N / n_ctx⌋ disjoint chunks; a chunk's first token is replaced by BOS where the vocabulary adds one;
    by default the targets first + 1 … n_ctx − 1 with first = ⌊n_ctx / 2⌋ are scored (llama.cpp,
    tools/perplexity).
    """

    n_ctx: int
    """Tokens a chunk."""
    bos_id: int | None = None
    """Token that replaces each chunk's first, or None."""
    chunks: int | None = None
    """Most chunks to score; None means all."""
    score_last: int | None = None
    """Score the last N targets of a chunk instead of the protocol's half."""

    def __post_init__(self):
        if self.n_ctx < MIN_CONTEXT:
            raise InputError(f"context {self.n_ctx} has no scored target; at least {MIN_CONTEXT} are needed")
        if self.chunks is not None and self.chunks < 1:
            raise InputError(f"chunks {self.chunks} is below 1")
        if self.score_last is not None and not 1 <= self.score_last < self.n_ctx:
            raise InputError(
                f"score-last {self.score_last} is not from 1 to {self.n_ctx - 1} targets of a chunk "
                f"of {self.n_ctx}"
            )

    @property
    def start(self) -> int:
        """Index in the chunk of the first scored target."""
        return self.n_ctx // 2 + 1 if self.score_last is None else self.n_ctx - self.score_last

    @property
    def name(self) -> str:
        """What the figures may be called."""
        return "llama-perplexity" if self.score_last is None else f"last {self.score_last} targets"

    def cut(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The tokens that are evaluated: int32 [chunks, n_ctx].

        Raises:
            InputError: fewer tokens than one chunk, or fewer chunks than were asked for.
        """
        whole = len(ids) // self.n_ctx
        if whole < 1:
            raise InputError(f"{len(ids)} tokens are fewer than one chunk of {self.n_ctx}")
        if self.chunks is not None and self.chunks > whole:
            raise InputError(
                f"{self.chunks} chunks of {self.n_ctx} were asked for, {len(ids)} tokens hold {whole}"
            )
        count = self.chunks or whole
        chunks = np.array(ids[: count * self.n_ctx], np.int32).reshape(count, self.n_ctx)
        if self.bos_id is not None:
            chunks[:, 0] = self.bos_id
        return chunks


@dataclasses.dataclass(frozen=True)
class ChunkScore:
    """One chunk's sums, and the perplexity of all chunks up to it."""

    index: int
    nll_sum: float
    """Σ NLL over the chunk's targets, float64, in order."""
    nll_square_sum: float
    scored_tokens: int
    running_perplexity: float
    read_share: float | None = None
    """Positions that its scored rows read in layers of approximate attention / positions cached for them;
    None where there is no such layer."""


@dataclasses.dataclass(frozen=True)
class TracedToken:
    """One scored position."""

    chunk: int
    position: int
    """Index in the chunk of the scored token."""
    token: int
    nll: float
    greedy: int
    """Most likely token there."""
    read_share: float | None = None
    """As in `ChunkScore`, of the row that predicts this token."""


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """The figures of a whole run."""

    perplexity: float
    perplexity_error: float | None
    """σ·PPL with σ = sqrt((E[x²] − E[x]²)/(n − 1)); None below 2 targets."""
    mean_nll: float
    scored_tokens: int
    n_ctx: int
    protocol: str
    chunks: tuple[ChunkScore, ...]
    read_share: float | None = None
    """Of all chunks, and of each, since all score the same positions; None as in `ChunkScore`."""


def score_chunks(
    session: Session,
    chunks: np.ndarray,
    protocol: Protocol,
    *,
    rows: int,
    reuse: bool = False,
    done: Sequence[ChunkScore] = (),
    progress: Progress | None = None,
    trace: Callable[[TracedToken], None] | None = None,
) -> Iterator[ChunkScore]:
    """Scores chunks one after the other.

    Args:
        session: a session whose context is at least n_ctx.
        chunks: int32 [chunks, n_ctx], from `Protocol.cut`.
        protocol: which targets count.
        rows: tokens a step.
        reuse: begin each chunk with what the session holds of it (`Session.score`).
        done: the first chunks' sums, of an earlier run; they are not evaluated again.
        progress: called with (positions evaluated, positions to evaluate), reaching all of them.
        trace: called for every scored token.

    Yields:
        The sums of every further chunk, in index order.

    Raises:
        RunError: a NaN or infinite NLL; its chunk and position are named.
    """
    each, whole = protocol.n_ctx - 1, (protocol.n_ctx - 1) * len(chunks)
    report = progress or (lambda done, total: None)
    report(each * len(done), whole)
    total_nll, total_count = _ordered_sum(c.nll_sum for c in done), sum(c.scored_tokens for c in done)
    for index, ids in enumerate(chunks[len(done) :], len(done)):
        before = index * each
        try:
            scores = session.score(
                ids,
                protocol.start,
                rows=rows,
                reuse=reuse,
                progress=lambda done, _, before=before: report(before + done, whole),
            )
        except RunError as error:
            raise RunError(f"chunk {index}: {error}") from error
        if trace:
            _trace_chunk(trace, index, ids, protocol.start, scores)
        nll = scores.nll.astype(np.float64).tolist()
        nll_sum, square_sum = _ordered_sum(nll), _ordered_sum(x * x for x in nll)
        total_nll, total_count = total_nll + nll_sum, total_count + len(nll)
        running = math.exp(total_nll / total_count)
        yield ChunkScore(index, nll_sum, square_sum, len(nll), running, _read_share(scores, protocol.start))


def _read_share(scores: Scores, start: int) -> float | None:
    """Positions read / positions cached, over the rows that predict position `start` and those after it."""
    if scores.positions_read is None:
        return None
    # The row before position j is at j − 1, where j positions are cached.
    return int(scores.positions_read.sum()) / sum(range(start, start + len(scores.nll)))


def _trace_chunk(
    trace: Callable[[TracedToken], None], chunk: int, ids: np.ndarray, start: int, scores: Scores
):
    for offset, (nll, greedy) in enumerate(zip(scores.nll.tolist(), scores.greedy.tolist(), strict=True)):
        position, read = start + offset, scores.positions_read
        share = None if read is None else int(read[offset]) / position
        trace(TracedToken(chunk, position, int(ids[position]), nll, greedy, share))


def summarize(chunks: Sequence[ChunkScore], protocol: Protocol) -> Perplexity:
    """Pools chunk sums, added in index order."""
    count = sum(chunk.scored_tokens for chunk in chunks)
    mean = _ordered_sum(chunk.nll_sum for chunk in chunks) / count
    mean_square = _ordered_sum(chunk.nll_square_sum for chunk in chunks) / count
    perplexity = math.exp(mean)
    error = None
    if count > 1:
        error = math.sqrt(max(mean_square - mean * mean, 0.0) / (count - 1)) * perplexity
    share = chunks[0].read_share
    return Perplexity(perplexity, error, mean, count, protocol.n_ctx, protocol.name, tuple(chunks), share)


def _ordered_sum(values: Iterable[float]) -> float:
    """Sum in index order: numpy's pairwise sum depends on the length, Python's own on its version."""
    total = 0.0
    for value in values:
        total += value
    return total
