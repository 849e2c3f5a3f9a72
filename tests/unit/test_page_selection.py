"""Which pages a token reads (AC-006-1, case 21), against sets that are made from first principles here."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.ops.attention.selected import attend_selected, selected_pages
from synapse_jax.spec.page_activation import PageActivation

C, K, G, H = 64, 2, 3, 8
PLACES = 6
TABLE = np.array([4, 2, 5, 0, 3, 1], np.int32)
CAPACITY = C * PLACES
select = jax.jit(selected_pages, static_argnums=5)
attend = jax.jit(attend_selected, static_argnums=(6, 7))


def read_sets(policy: PageActivation, position: int) -> tuple[set[int], set[int], int]:
    """(pages always read, the rest, how many of the rest are chosen) of a token, page by page."""
    held = [set(range(u, min(u + policy.page, position + 1))) for u in range(0, position + 1, policy.page)]
    last = set(range(max(0, position - policy.window + 1), position + 1))
    always = {u for u, positions in enumerate(held) if u < policy.sink or positions & last}
    rest = set(range(len(held))) - always
    return always, rest, min(policy.budget // policy.page, len(rest))


def pages_of(policy: PageActivation, position: int, q=None, keys=None, layer: int = 0) -> list[list[int]]:
    """The pages that each head reads, in the order in which it does."""
    q, bounds = cache(policy, q, keys)[::2]
    found, count = select(q, bounds, TABLE, jnp.int32(position), jnp.int32(layer), policy)
    return np.asarray(found)[:, : int(count)].tolist()


def cache(policy: PageActivation, q=None, keys=None):
    """Queries [K, G, H], a pool and bounds over all cells that hold the keys in the table's order."""
    random = np.random.RandomState(3)
    drawn = random.randn(K, G, H), random.randn(CAPACITY, K, H)
    q, keys = (d.astype(np.float32) if x is None else x for x, d in zip((q, keys), drawn, strict=True))
    pool = np.zeros((PLACES, C, 2, K, H), np.float32)
    pool[TABLE, :, 0] = keys.reshape(PLACES, C, K, H)
    pool[TABLE, :, 1] = np.arange(CAPACITY, dtype=np.float32).reshape(PLACES, C, 1, 1)
    paged = pool[:, :, 0].reshape(PLACES, C // policy.page, policy.page, K, H)
    return q, pool, np.stack([paged.min(2), paged.max(2)], axis=2)


E = 16
POLICIES = [
    PageActivation(budget=2 * E, window=E),
    PageActivation(budget=2 * E, window=E + 3, sink=2),
    PageActivation(budget=0, window=1, sink=0),
    PageActivation(budget=5 * E, window=5, sink=0, select="random", seed=9),
    PageActivation(budget=3 * E, window=40, heads="query"),
    PageActivation(budget=64, window=100, page=64),
    PageActivation(budget=1 << 20, window=1),
    PageActivation(budget=2 * E, window=1 << 20, sink=1 << 20),
]
POSITIONS = [0, E - 2, E - 1, E, 3 * E + 4, C - 1, C, C + 1, 5 * C + 7, CAPACITY - 1]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_budget_is_honoured_to_the_page(policy):
    """At lengths page − 1, page, page + 1, 3·page + 5 and beyond; also with more pages than there are."""
    for position in POSITIONS:
        always, rest, chosen = read_sets(policy, position)
        heads = pages_of(policy, position)
        assert len(heads) == (K * G if policy.heads == "query" else K)
        for pages in heads:
            assert pages == sorted(set(pages))
            assert always <= set(pages) <= always | rest
            assert len(set(pages) - always) == chosen
            # What the record says is what these pages hold up to the token.
            held = [p for u in pages for p in range(u * policy.page, (u + 1) * policy.page) if p <= position]
            assert len(held) == policy.positions_read(position)
    newest = [pages[-1] for pages in pages_of(policy, 5 * C + 7)]
    assert newest == [(5 * C + 7) // policy.page] * len(newest)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("planted", [E + 3, 7 * E, 9 * E - 1])
def test_selection_keeps_sink_window_and_best_page(planted, sign):
    """A key that only one query head of a group looks for is found with a budget of two pages."""
    policy = PageActivation(budget=2 * E, window=2 * E)
    random = np.random.RandomState(planted)
    position = 5 * C - 3
    keys = (0.5 * random.randn(CAPACITY, K, H)).astype(np.float32)
    q = random.randn(K, G, H).astype(np.float32)
    for head in range(K):
        q[head, head] = sign * 6 * np.sign(random.randn(H))
        keys[planted + 2 * E * head, head] = 2 * q[head, head] / 6
    q, pool, bounds = cache(policy, q, keys)
    for head, pages in enumerate(pages_of(policy, position, q, keys)):
        target = (planted + 2 * E * head) // E
        always, rest, _ = read_sets(policy, position)
        assert target in rest and target in pages and always <= set(pages)
        # Of all pages in the rest it is the one with the largest product, so it is chosen by itself too.
        alone = PageActivation(budget=E, window=2 * E)
        assert target in pages_of(alone, position, q, keys)[head]
    out = attend(q.reshape(1, K * G, H), pool, bounds, TABLE, jnp.int32(position), jnp.int32(0), 1.0, policy)
    out = np.asarray(out).reshape(K, G, H)
    for head in range(K):
        np.testing.assert_allclose(out[head, head], planted + 2 * E * head, rtol=1e-4)


def test_query_heads_select_for_themselves():
    """With heads=query a head's pages are those that it has when it is alone in its group."""
    policy = PageActivation(budget=3 * E, window=E, heads="query")
    q, _, _ = cache(policy)
    heads = pages_of(policy, CAPACITY - 1)
    assert len({tuple(pages) for pages in heads}) > K
    for g in range(G):
        alone = pages_of(PageActivation(budget=3 * E, window=E), CAPACITY - 1, q[:, g : g + 1])
        assert alone == [heads[k * G + g] for k in range(K)]


def test_equal_pages_are_taken_from_the_first():
    policy = PageActivation(budget=3 * E, window=E)
    pages = pages_of(policy, CAPACITY - 1, keys=np.ones((CAPACITY, K, H), np.float32))
    assert pages == [[0, 1, 2, 3, CAPACITY // E - 1]] * K


def test_random_control_is_deterministic_and_within_budget():
    policy = PageActivation(budget=4 * E, window=8, select="random", seed=1)
    position = CAPACITY - 1
    _, rest, chosen = read_sets(policy, position)

    def drawn(policy=policy, position=position, layer=0, q=None):
        heads = pages_of(policy, position, q, layer=layer)
        assert all(len(set(pages) & rest) == chosen == 4 for pages in heads)
        return [sorted(set(pages) & rest) for pages in heads]

    first = drawn()
    assert first == drawn() == drawn(q=np.zeros((K, G, H), np.float32))
    assert first[0] != first[1]  # heads draw for themselves
    other = PageActivation(budget=4 * E, window=8, select="random", seed=2)
    assert len({str(first), str(drawn(other)), str(drawn(layer=1)), str(drawn(position=position - 1))}) == 4
    # Every page of the rest is as likely as another: 24 layers × 8 positions × 2 heads × 4 of 22 pages.
    counts = np.zeros(CAPACITY // E)
    for layer in range(24):
        for back in range(8):
            for pages in drawn(layer=layer, position=position - back):
                counts[pages] += 1
    mean = counts.sum() / len(rest)
    assert abs(mean - 24 * 8 * K * 4 / 22) < 1e-9 and set(np.flatnonzero(counts)) == rest
    assert (np.abs(counts[sorted(rest)] - mean) < 5 * mean**0.5).all()
