"""ModelIR + Entry → a pure function of (params, pages, batch)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from synapse_jax.dims import DECODE_TOKENS, HEAD_BLOCK_ROWS
from synapse_jax.graph.attend import AttendFunction, AttendNode, entry_attention, selects_pages
from synapse_jax.graph.entry import ChooseBatch, DecodeBatch, Entry, Rows, SampleBatch, StepBatch
from synapse_jax.graph.scan import scan_layers
from synapse_jax.ir.nodes import Block, ModelIR, Node, scoped_name
from synapse_jax.kv.pages import layer_arrays
from synapse_jax.ops import elementwise, linear
from synapse_jax.ops.logprob import nll_and_greedy, nll_of
from synapse_jax.ops.sampling import choose

Params = dict[str, jax.Array]


def entry_function(ir: ModelIR, entry: Entry, attend: AttendFunction | None = None) -> Callable:
    """The pure function of an entry.

    Args:
        ir: the model.
        entry: which way in; its shapes are those of `abstract_arguments(ir, entry)`.
        attend: writes the keys and values of a layer whose mask is all there is to it and attends to them;
            paged attention by default.

    Returns:
        `function(params, pages, batch) → (out, pages)`. `out` is, by entry: step (nll [T], greedy [T],
        logits [8, V]), meaningless in rows that are not asked for; logits [T, V]; decode and sample
        (chosen [A, B], nll [A, B], turns evaluated); choose (chosen [B], nll [B]).
    """
    function = {
        "step": _step,
        "logits": _logits,
        "decode": _decode,
        "sample": _sample,
        "choose": _choose,
    }[entry.name]

    def call(params: Params, pages, batch):
        return function(Model(ir, params, entry_attention(ir, entry, attend)), pages, batch)

    call.__name__ = entry.name
    return call


def _step(model: Model, pages, batch: StepBatch):
    x_TD, pages = model.evaluate(pages, batch.rows)
    nll_T, greedy_T = _score_rows(model, x_TD, batch)
    x_QD = x_TD.at[batch.logit_row_Q].get(mode="promise_in_bounds")
    # The head costs as much as several layers, so it runs only where it is asked for.
    vocab_size = model.ir.spec.vocab_size
    logits_QV = lax.cond(
        batch.wants_logits, model.head, lambda x: jnp.zeros((x.shape[0], vocab_size), jnp.float32), x_QD
    )
    return (nll_T, greedy_T, logits_QV), pages


def _score_rows(model: Model, x_TD: jax.Array, batch: StepBatch):
    """NLL and greedy token of the rows asked for, a block of logits at a time."""
    rows = x_TD.shape[0]
    size = min(rows, HEAD_BLOCK_ROWS)

    def block(i, out):
        nll_T, greedy_T = out
        start = i * size
        logits_RV = model.head(lax.dynamic_slice_in_dim(x_TD, start, size))
        nll_R, greedy_R = nll_and_greedy(logits_RV, lax.dynamic_slice_in_dim(batch.target_T, start, size))
        return (
            lax.dynamic_update_slice_in_dim(nll_T, nll_R, start, 0),
            lax.dynamic_update_slice_in_dim(greedy_T, greedy_R, start, 0),
        )

    out = (jnp.zeros(rows, jnp.float32), jnp.zeros(rows, jnp.int32))
    return lax.fori_loop(batch.first_row // size, (batch.stop_row + size - 1) // size, block, out)


def _logits(model: Model, pages, batch: Rows):
    x_TD, pages = model.evaluate(pages, batch)
    return model.head(x_TD), pages


def _decode(model: Model, pages, batch: DecodeBatch):
    def pick(logits_BV, turn, nothing):
        nll_B, greedy_B = nll_and_greedy(logits_BV, batch.target_AB[turn])
        return greedy_B, nll_B, nothing

    return _take_turns(model, pages, batch, pick, ())


def _sample(model: Model, pages, batch: SampleBatch):
    def pick(logits_BV, turn, seen_BV):
        chosen_B = choose(logits_BV, seen_BV, batch.decode.position_AB[turn] + 1, batch.sampler)
        seen_BV = seen_BV.at[jnp.arange(chosen_B.shape[0]), chosen_B].set(True)
        return chosen_B, nll_of(logits_BV, chosen_B), seen_BV

    return _take_turns(model, pages, batch.decode, pick, batch.seen_BV)


def _choose(model: Model, pages, batch: ChooseBatch):
    chosen_B = choose(batch.logits_BV, batch.seen_BV, batch.position_B, batch.sampler)
    return (chosen_B, nll_of(batch.logits_BV, chosen_B)), pages


def _take_turns(model: Model, pages, batch: DecodeBatch, pick: Callable, carried):
    """Evaluates one token a sequence, turn after turn; `pick` chooses the next ones.

    `pick(logits [B, V], turn, carried)` returns (tokens [B], NLL [B], carried).
    """
    sequences = batch.token_AB.shape[1]

    def unfinished(state):
        turn, stopped_B, *_ = state
        return (turn < batch.turns) & ~jnp.all(stopped_B)

    def evaluate(state):
        turn, stopped_B, previous_B, chosen_AB, nll_AB, pages, carried = state
        token_B = jnp.where(turn < batch.given, batch.token_AB[turn], previous_B)
        x_BD, pages = model.evaluate(pages, _decode_rows(batch, turn, token_B))
        chosen_B, nll_B, carried = pick(model.head(x_BD), turn, carried)
        is_stop_B = jnp.any(chosen_B[:, None] == batch.stop_token_S[None, :], axis=-1)
        stopped_B = stopped_B | (is_stop_B & (turn + 1 >= batch.given))
        chosen_AB, nll_AB = chosen_AB.at[turn].set(chosen_B), nll_AB.at[turn].set(nll_B)
        return turn + 1, stopped_B, chosen_B, chosen_AB, nll_AB, pages, carried

    nothing_AB = jnp.zeros((DECODE_TOKENS, sequences), jnp.int32)
    state = (
        jnp.int32(0),
        nothing_AB[0] > 0,
        nothing_AB[0],
        nothing_AB,
        nothing_AB.astype(jnp.float32),
        pages,
        carried,
    )
    turns, _, _, chosen_AB, nll_AB, pages, _ = lax.while_loop(unfinished, evaluate, state)
    return (chosen_AB, nll_AB, turns), pages


def _decode_rows(batch: DecodeBatch, turn: jax.Array, token_B: jax.Array) -> Rows:
    """The rows of one turn: one for each sequence, none of them padding."""
    return Rows(
        token_T=token_B,
        sequence_T=jnp.arange(token_B.shape[0], dtype=jnp.int32),
        position_T=batch.position_AB[turn],
        role_T=batch.role_B,
        cos_ZTR=batch.cos_AZBR[turn],
        sin_ZTR=batch.sin_AZBR[turn],
        page_YT=batch.page_AYB[turn],
        cell_T=batch.cell_AB[turn],
        page_table_YBM=batch.page_table_YBM,
        to_midpoint=batch.to_midpoint,
    )


@dataclasses.dataclass(frozen=True)
class Model:
    """The IR bound to traced weights: evaluates its nodes in order."""

    ir: ModelIR
    params: Params
    attend: AttendNode

    def evaluate(self, pages, rows: Rows):
        """The residual stream [T, D] after the last layer, and the pages that hold the rows' keys."""
        x_TD, _ = self._run(self.ir.embed, self.params, {"tokens": rows.token_T}, rows, None)
        if self.ir.profile.layers == "scan":
            block = self.ir.layers[0]
            weights = {w.name: self.params[f"layers.{w.name}"] for node in block.nodes for w in node.weights}
            return scan_layers(self.ir, self.layer_function(block), weights, x_TD, rows, tuple(pages))
        # Layers that are built alike are traced once: in the module they are one function, called L times.
        traced = {block: jax.jit(self.layer_function(block)) for block in dict.fromkeys(self.ir.layers)}
        pages = list(pages)
        for index, (block, places) in enumerate(
            zip(self.ir.layers, layer_arrays(self.ir.spec, self.ir.profile), strict=True)
        ):
            weights = {
                weight.name: self.params[scoped_name(f"layers.{index}", weight.name)]
                for node in block.nodes
                for weight in node.weights
            }
            cache = tuple(pages[place] for place in places)
            # Equal layers share a trace, so only one that draws at random is told its index.
            number = jnp.int32(index) if selects_pages(block) else None
            with jax.named_scope(f"layer_{index}"):
                x_TD, cache = traced[block](weights, x_TD, rows, cache, number)
            for place, array in zip(places, cache, strict=True):
                pages[place] = array
        return x_TD, tuple(pages)

    def head(self, x_RD: jax.Array) -> jax.Array:
        """Logits [R, V] of rows of the residual stream."""
        with jax.named_scope("head"):
            return self._run(self.ir.head, self.params, {"x": x_RD}, None, None)[0]

    def layer_function(self, block: Block) -> Callable:
        """The function (weights, x [T, D], rows, cache, index) → (x, cache) of layers with this block."""

        # Its name is in the module's text, and so in the program identity.
        def layer(weights: Params, x_TD: jax.Array, rows: Rows, cache, index: jax.Array | None):
            return self._run(block, weights, {"x": x_TD}, rows, cache, index)

        return layer

    def _run(
        self,
        block: Block,
        weights: Params,
        values: dict[str, Any],
        rows: Rows | None,
        cache: Any,
        index: jax.Array | None = None,
    ):
        """Evaluates a block: its last output and the layer's cache."""
        output: Any = None
        for node in block.nodes:
            inputs = [values[value.name] for value in node.inputs]
            with jax.named_scope(node.op):
                if node.op == "attend":
                    assert rows is not None
                    q_TNH, k_TKH, v_TKH = inputs
                    output, cache = self.attend(node, cache, q_TNH, k_TKH, v_TKH, rows, index)
                elif node.op == "rope":
                    assert rows is not None
                    table = int(node.attribute("table"))
                    output = elementwise.rotate(inputs[0], rows.cos_ZTR[table], rows.sin_ZTR[table])
                else:
                    output = _OPERATIONS[node.op](
                        node, *inputs, *(weights[weight.name] for weight in node.weights)
                    )
            values[node.output.name] = output
        return output, cache


def _heads(node: Node, x_TO: jax.Array) -> jax.Array:
    first, count, size = (int(node.attribute(name)) for name in ("first", "count", "size"))
    return x_TO[:, first * size : (first + count) * size].reshape(x_TO.shape[0], count, size)


_OPERATIONS: dict[str, Callable[..., jax.Array]] = {
    "embed": lambda node, tokens, table: linear.embed(tokens, table, node.attribute("scale")),
    "rms_norm": lambda node, x, weight: elementwise.rms_norm(x, weight, node.attribute("epsilon")),
    "linear": lambda node, x, weight, bias=None: linear.linear(x, weight, bias),
    "heads": _heads,
    "silu_gate": lambda node, gate_up: elementwise.silu_gate(gate_up),
    "gelu_gate": lambda node, gate_up: elementwise.gelu_gate(gate_up),
    "add": lambda node, a, b: a + b,
}
