"""Costs of a graph: the layers and the rest are the whole, and a layer costs what one more layer costs."""

from __future__ import annotations

import dataclasses

import pytest

from synapse_jax.graph.compile import GRAPHS, lower
from synapse_jax.graph.cost import compiled_account, cost_table
from synapse_jax.graph.entry import abstract_params, entry_for
from synapse_jax.ir.build import build
from synapse_jax.kv.pages import abstract_pages
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.compiled import compiled
from tests.tiny_model import tiny_spec

FIGURES = ("flops", "transcendentals", "bytes", "weight_bytes", "cache_bytes")
ROUNDING = 1e-6
"""XLA adds costs in float32."""


def ir_of(layers: int = 4, attention: str = "dense", **changes):
    spec = dataclasses.replace(tiny_spec(), layers=layers, **changes)
    return build(spec, resolve(RuntimeProfile(attention=attention), spec))


def table(ir, name: str, rows: int):
    return cost_table(ir, lower(ir, entry_for(ir, name, rows)))


CASES = [
    ("dense", {}, 1),
    ("dense", {"window": 8, "window_layers": (True, False, True, True)}, 2),
    ("pages:budget=32,window=16,dense_layers=0", {}, 2),
    ("compressed:window=16,block=4", {}, 1),
]


@pytest.mark.parametrize("entry", [("step", 32), ("decode", 1)])
@pytest.mark.parametrize(("attention", "changes", "kinds"), CASES)
def test_layers_and_the_rest_are_the_whole(attention, changes, kinds, entry):
    ir = ir_of(4, attention, **changes)
    *layers, rest, whole = table(ir, *entry)
    assert len(layers) == kinds and sum(row["count"] for row in layers) == 4
    for name in FIGURES:
        total = sum(row["count"] * row[name] for row in (*layers, rest))
        assert total == pytest.approx(whole[name], rel=ROUNDING)
    assert min(row[name] for row in (*layers, rest) for name in FIGURES[:4]) > 0
    assert rest["cache_bytes"] == 0
    params, pages = abstract_params(ir), abstract_pages(ir.spec, ir.profile, 256)
    for name, arrays in (("weight_bytes", params.values()), ("cache_bytes", pages)):
        assert whole[name] == sum(a.size * a.dtype.itemsize for a in arrays)


@pytest.mark.parametrize("entry", [("step", 32), ("decode", 1)])
def test_a_layer_costs_what_one_more_layer_costs(entry):
    """The table lowers a layer alone; here whole models of different depth are compared."""
    few, more = table(ir_of(2), *entry), table(ir_of(5), *entry)
    for name in FIGURES:
        added = more[-1][name] - few[-1][name]
        assert added == pytest.approx(3 * few[0][name], rel=1e-4)  # a call costs a few bytes
    # So what is not of a layer does not depend on how many there are.
    assert more[-2]["flops"] == pytest.approx(few[-2]["flops"], rel=1e-4)


def test_layers_as_a_loop_are_all_counted():
    spec = dataclasses.replace(tiny_spec(), layers=4)
    looped = build(spec, resolve(RuntimeProfile(layers="scan"), spec))
    (layer, rest, whole), unrolled = table(looped, "step", 32), table(ir_of(), "step", 32)
    assert {**layer, "part": ""} == {**unrolled[0], "part": ""} and layer["count"] == 4
    for name in FIGURES:
        assert 4 * layer[name] + rest[name] == pytest.approx(whole[name], rel=ROUNDING)
    assert whole["flops"] == pytest.approx(unrolled[-1]["flops"], rel=1e-3)
    assert whole["weight_bytes"] == unrolled[-1]["weight_bytes"]


def test_a_layer_s_products_are_counted():
    """2·T·I·O operations a linear, and a page of q·k and p·v; norms, rotation and softmax add little."""
    ir = ir_of()
    spec, rows = ir.spec, 32
    layer = table(ir, "step", rows)[0]
    matrices = sum(
        w.size for n, w in abstract_params(ir).items() if n.startswith("layers.0.") and w.ndim == 2
    )
    attention = 4 * rows * ir.profile.page_size * spec.query_heads * spec.head_size
    products = 2 * rows * matrices + attention
    assert products < layer["flops"] < 1.2 * products


def test_choose_has_no_layers():
    rest, whole = table(ir_of(), "choose", 1)
    assert rest == {**whole, "part": "the rest"} and whole["flops"] > 0


def test_the_compiler_s_account_of_memory():
    ir = ir_of()
    account = compiled_account(GRAPHS.compile(ir, entry_for(ir, "step", 32), compiled.device))
    pages = sum(a.size * a.dtype.itemsize for a in abstract_pages(ir.spec, ir.profile, 256))
    whole = table(ir, "step", 32)[-1]
    assert account["alias_bytes"] == pages
    assert account["argument_bytes"] > whole["weight_bytes"] + pages
    assert 0 < account["bytes"] < whole["bytes"]
    assert account["temporary_bytes"] > 0 and account["flops"] > 0
