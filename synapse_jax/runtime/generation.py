"""Continuing a prompt: which tokens come next, several a device call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from synapse_jax.dims import DECODE_TOKENS
from synapse_jax.graph.entry import DECODE_ROLE
from synapse_jax.runtime import packing
from synapse_jax.runtime.evaluation import evaluate_tokens
from synapse_jax.runtime.prefix import Reused
from synapse_jax.runtime.results import Generation
from synapse_jax.runtime.runner import Runner
from synapse_jax.spec.sampling import Sampling

CALL_S = 0.1
"""Seconds that a device call should take while someone watches the text grow."""


class Continuation:
    """One prompt and the tokens that follow it.

    Args:
        runner: its cache holds what is reused, and has room for all of it.
        ids: the prompt, int32 [n].
        sampling: how tokens are chosen.
        logprobs: whether log-probabilities are wanted.
        stop_ids: at most 32 tokens that end the text.
        reused: the part of the prompt that is held already.
    """

    def __init__(
        self,
        runner: Runner,
        ids: np.ndarray,
        sampling: Sampling,
        logprobs: bool,
        stop_ids: Sequence[int],
        reused: Reused,
    ):
        self._runner, self._ids, self._stop_ids, self._reused = runner, ids, stop_ids, reused
        self._sampling, self._logprobs = sampling, logprobs
        # Only a penalty looks at it, and then it holds the prompt too.
        self._seen_V = np.zeros(runner.spec.vocab_size, np.bool_)
        if sampling.repetition_penalty != 1:
            self._seen_V[ids] = True
        self._new: list[int] = []
        self._nll: list[float] = []
        self._turns = DECODE_TOKENS

    def run(
        self,
        most: int,
        report: Callable[[int], None],
        on_tokens: Callable[[list[int]], None] | None,
    ) -> Generation:
        """Evaluates the prompt and adds up to `most` tokens.

        Args:
            most: tokens to add at most; 0 evaluates the prompt only.
            report: called with the positions evaluated.
            on_tokens: called with new tokens as they come, without a stop token. Calls of the device then
                begin with one token and grow while they are short.
        """
        self._turns = DECODE_TOKENS if on_tokens is None else 1
        logits_V = self._evaluate_prompt(report)
        if most:
            self._add(*self._first(logits_V), on_tokens)
        while 0 < len(self._new) < most and not self._stopped:
            self._add(*self._turn(min(self._turns, most - len(self._new))), on_tokens)
            report(len(self._ids) + len(self._new) - 1)
        if self._reused.is_on:
            # A talk goes on: the next call begins with the rung that holds one position more.
            cache = self._runner.cache
            self._runner.look_ahead(cache.held, cache.capacity + 1)
        shown = self._shown(self._new)
        return Generation(
            tuple(shown),
            "stop" if self._stopped else "length",
            len(self._ids),
            self._reused.tokens,
            self._reused.generated,
            self._reused.note,
            tuple(-nll for nll in self._nll[: len(shown)]) if self._logprobs else None,
        )

    @property
    def _stopped(self) -> bool:
        return bool(self._new) and self._new[-1] in self._stop_ids

    def _shown(self, tokens: list[int]) -> list[int]:
        """Tokens without a stop token, which can only be the last one."""
        return tokens[:-1] if tokens and tokens[-1] in self._stop_ids else tokens

    def _add(self, tokens: list[int], nll: list[float], on_tokens: Callable | None) -> None:
        self._new += tokens
        self._nll += nll
        if self._sampling.repetition_penalty != 1:
            self._seen_V[tokens] = True
        if on_tokens and (shown := self._shown(tokens)):
            on_tokens(shown)

    def _evaluate_prompt(self, report: Callable[[int], None]) -> np.ndarray:
        """Evaluates what is new of the prompt; returns the logits [V] after it."""
        new, start = self._ids[self._reused.tokens :], self._reused.tokens
        logits_V = evaluate_tokens(self._runner, new, start, self._reused, report)
        if self._reused.is_on:
            self._runner.cache.take_snapshot(len(self._ids))
        return logits_V

    def _first(self, logits_V: np.ndarray) -> tuple[list[int], list[float]]:
        """The token after the prompt, and its NLL where that is wanted."""
        if self._sampling.is_greedy and not self._logprobs:
            return [int(np.argmax(logits_V))], []
        batch = packing.choose_batch(logits_V, self._seen_V, len(self._ids), self._sampling)
        token_B, nll_B = map(np.asarray, self._runner.call_alone(self._runner.entry("choose", 1), batch))
        return token_B.tolist(), nll_B.tolist()

    def _turn(self, turns: int) -> tuple[list[int], list[float]]:
        """Evaluates the newest token and those after it, `turns` in all; returns the next tokens and NLL."""
        runner, position = self._runner, len(self._ids) + len(self._new) - 1
        name = "decode" if self._sampling.is_greedy else "sample"
        entry = runner.entry(name, 1)
        turns = runner.room(position, turns)
        given = np.array([self._new[-1]], np.int32)
        segment = runner.segment(given, position, turns, DECODE_ROLE)
        batch = packing.decode_batch(entry, runner.ir, segment, turns=turns, stop_tokens=self._stop_ids)
        if name == "sample":
            batch = packing.sample_batch(batch, self._seen_V, self._sampling)
        started = time.perf_counter()
        chosen, nll, evaluated = map(np.asarray, runner.call(entry, batch))
        if time.perf_counter() - started < CALL_S / 2:
            self._turns = min(2 * self._turns, DECODE_TOKENS)
        count = int(evaluated)
        runner.check_finite(nll[:count, 0], position + 1)
        runner.cache.advance(position + count)
        return chosen[:count, 0].tolist(), nll[:count, 0].tolist() if self._logprobs else []
