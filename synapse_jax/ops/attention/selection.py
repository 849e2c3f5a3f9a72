"""Which selection pages a token reads: always the sink and the recent ones, and a budget of the rest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.kv.sizes import span_pages
from synapse_jax.ops.attention.xla import batched_dot
from synapse_jax.spec.page_activation import PageActivation


def bound_scores(q_KGH: jax.Array, bounds_U2KH: jax.Array) -> jax.Array:
    """Upper bounds of q·k over the keys of each selection page, float32 [K, G, U].

    Σ_d max(q_d·m_d, q_d·M_d) (Quest, arXiv 2406.10774), as one product of [q⁺, q⁻] with [M, m]: of every pair
    of terms one is an exact zero. A key within the bounds has no larger product in the same order of
    additions, since float rounding is monotone.

    Args:
        q_KGH: float32 queries.
        bounds_U2KH: float32, least m at index 0 of the second axis and largest M at 1.
    """
    q_KGI = jnp.concatenate([jnp.maximum(q_KGH, 0), jnp.minimum(q_KGH, 0)], axis=-1)
    bounds_KUI = jnp.concatenate([bounds_U2KH[:, 1], bounds_U2KH[:, 0]], axis=-1).transpose(1, 0, 2)
    return batched_dot(q_KGI, bounds_KUI)


def random_scores(seed: int, layer: jax.Array, position: jax.Array, heads: int, pages: int) -> jax.Array:
    """Scores that depend on nothing but their place, float32 [W, U]: whole numbers below 2^24.

    Args:
        seed: of the policy.
        layer: int32, index of the layer.
        position: int32, of the token.
        heads: W.
        pages: U.
    """
    place = _mixed(jnp.uint32(seed))
    for word in (layer, position):
        place = _mixed(place ^ word.astype(jnp.uint32))
    head_W1 = _mixed(place ^ jnp.arange(heads, dtype=jnp.uint32)[:, None])
    bits_WU = _mixed(head_W1 ^ jnp.arange(pages, dtype=jnp.uint32)[None, :])
    return (bits_WU >> 8).astype(jnp.float32)


def _mixed(word: jax.Array) -> jax.Array:
    """A bijection of uint32 whose bits all depend on all: the finalizer of MurmurHash3, after a step that
    keeps 0 from mapping to itself."""
    word = word + jnp.uint32(0x9E3779B9)
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)


def select_pages(
    score_WU: jax.Array, position: jax.Array, policy: PageActivation
) -> tuple[jax.Array, jax.Array]:
    """The selection pages that a token reads, ascending.

    Args:
        score_WU: float32, what is chosen by; of equal pages the first is taken.
        position: int32, the token's own, below U·E.
        policy: budget, window, sink and E.

    Returns:
        int32 [W, L], pages of the sequence, and int32 (), how many of these count: as many for every head.
    """
    pages, size = score_WU.shape[1], policy.page
    most = min(policy.budget_pages, pages)
    recent = jnp.maximum(position - policy.window + 1, 0) // size
    sinks = jnp.minimum(policy.sink, recent)
    chosen = jnp.minimum(most, recent - sinks)
    end = sinks + chosen
    places = min(policy.sink + most + span_pages(policy.window, size), pages)
    place_1L = jnp.arange(places, dtype=jnp.int32)[None, :]
    page_WL = jnp.broadcast_to(
        jnp.where(place_1L < sinks, place_1L, place_1L - end + recent), (score_WU.shape[0], places)
    )
    if most:
        best_WX = _best(score_WU, sinks, recent, most)
        at_L = jnp.clip(place_1L[0] - sinks, 0, most - 1)
        page_WL = jnp.where((place_1L >= sinks) & (place_1L < end), best_WX[:, at_L], page_WL)
    return page_WL, end + position // size + 1 - recent


def _best(score_WU: jax.Array, first: jax.Array, end: jax.Array, most: int) -> jax.Array:
    """int32 [W, most]: the best pages from `first` to `end` − 1 in ascending order, then U where there are
    fewer."""
    page_U = jnp.arange(score_WU.shape[1], dtype=jnp.int32)
    is_rest_U = (page_U >= first) & (page_U < end)
    # Nothing of the rest scores as low as what is not of it.
    lowest = jnp.finfo(jnp.float32).min
    score_WU = jnp.where(is_rest_U[None, :], jnp.maximum(score_WU, lowest), -jnp.inf)
    # Behind a barrier: what follows would turn top_k into a sort of everything (ops.sampling).
    _, best_WX = lax.optimization_barrier(lax.top_k(score_WU, most))
    is_rest_WX = (best_WX >= first) & (best_WX < end)
    return jnp.sort(jnp.where(is_rest_WX, best_WX.astype(jnp.int32), score_WU.shape[1]), axis=-1)
