"""A session: one model under one profile on one device. The only object that changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from synapse_jax.dims import MAX_STEP_ROWS, row_bucket
from synapse_jax.errors import InputError
from synapse_jax.graph.compile import CompiledEntry
from synapse_jax.graph.entry import READY, STOP_TOKENS
from synapse_jax.graph.fingerprint import Identity, profile_identity
from synapse_jax.runtime.checks import check_continuations, check_scoring, checked_ids, checked_rows
from synapse_jax.runtime.evaluation import evaluate_tokens, read_logit_blocks, read_logits, score_tokens
from synapse_jax.runtime.forks import Forks
from synapse_jax.runtime.generation import Continuation
from synapse_jax.runtime.params import ModelSource
from synapse_jax.runtime.plan import positions_needed
from synapse_jax.runtime.prefix import Prefix, Reused
from synapse_jax.runtime.results import Generation, Scores, positions_read
from synapse_jax.runtime.runner import Progress, Runner
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from synapse_jax.spec.sampling import GREEDY, Sampling


class Session:
    """Runs a model. Not for use from several threads at once.

    Args:
        model: gives the spec and the weights (`sj.load`).
        profile: context, precision, device …; the defaults are the model's own.
        ready: (entry, rows) pairs to compile now; others compile when first used, and say so.
        positions: positions to make room for at once; more are made room for when they come.
        log: told, a line each time, what compiles; the `synapse_jax` logger by default.
        progress: called with (weights loaded, weights in all).
        sharing: a session of the same model whose weights are used (`runtime.sharing`).

    Raises:
        InputError: the profile does not fit the model or the machine.
    """

    def __init__(
        self,
        model: ModelSource,
        profile: RuntimeProfile | None = None,
        *,
        ready: Sequence[tuple[str, int]] = READY,
        positions: int = 1,
        log: Callable[[str], None] | None = None,
        progress: Progress | None = None,
        sharing: Session | None = None,
    ):
        self.spec = model.spec
        self.profile = resolve(profile or RuntimeProfile(), model.spec)
        self._model = model
        self._runner = Runner(
            model,
            self.profile,
            ready=ready,
            positions=positions,
            log=log,
            progress=progress,
            params=None if sharing is None else sharing._runner.params,
        )
        self.device, self.ir = self._runner.device, self._runner.ir
        self.cache = self._runner.cache
        """The KV cache, to be looked at."""
        self._prefix = Prefix(self.cache, self._runner.evaluated)

    @property
    def identity(self) -> Identity:
        """The profile identity: what the numbers depend on."""
        return profile_identity(self.ir)

    @property
    def context(self) -> int:
        """Most positions that a sequence may have."""
        assert self.profile.context is not None
        return self.profile.context

    @property
    def compile_s(self) -> float:
        """Seconds that work has waited for compilations, at load and later."""
        return self._runner.compile_s

    @property
    def load_s(self) -> float:
        """Seconds spent reading, converting and placing the weights."""
        return self._runner.load_s

    @property
    def compiled_entries(self) -> tuple[CompiledEntry, ...]:
        """Every entry compiled so far, in the order of their names and shapes."""
        return self._runner.compiled_entries

    @property
    def evaluated_ids(self) -> np.ndarray:
        """Token IDs that the last call evaluated, int32 [n], as the device was given them or chose them."""
        return self._runner.evaluated.ids

    def score(
        self,
        ids: Sequence[int] | np.ndarray,
        start: int = 1,
        stop: int | None = None,
        *,
        rows: int = MAX_STEP_ROWS,
        reuse: bool = False,
        progress: Progress | None = None,
    ) -> Scores:
        """Scores positions `start` … `stop` − 1 of a token sequence.

        Args:
            ids: token IDs [n], n at most the context.
            start: first position to score, at least 1: position 0 has nothing before it.
            stop: one past the last; None means n.
            rows: tokens a step, 1 to 512. From 2 up it does not change a bit (rows pad up to 32 or more). An
                approximate attention policy needs 1: rows start − 1 and later then have the decode role, and
                what comes before them is evaluated as a prompt, in full-size steps.
            reuse: begin with what the session holds of these tokens: up to the last position whose NLL it
                remembers, or has no need of. Not a bit changes. The tokens are remembered afterwards, or the
                prompt before the scored rows if only decoded tokens are approximated.
            progress: called with (positions evaluated, positions to evaluate) after every step.

        Returns:
            NLL and greedy tokens, j-th entry for position start + j.

        Raises:
            InputError: a range, length, token or row count that cannot be used.
            RunError: a NaN or infinite NLL; its position is named.
        """
        ids = checked_ids(ids, self.spec.vocab_size, self.context)
        stop = len(ids) if stop is None else stop
        if not 1 <= start < stop <= len(ids):
            raise InputError(f"score range {start} … {stop} is not 1 ≤ start < stop ≤ {len(ids)} tokens")
        check_scoring(self.profile.policy, rows, reuse)
        nll, greedy = np.zeros(stop - start, np.float32), np.zeros(stop - start, np.int32)
        remembered, decodes = self._prefix.tokens, self.profile.policy.is_decode_only
        known = remembered.read_scores(ids, start, nll, greedy) if reuse and not decodes else 0
        # The row before the first unknown position is evaluated again, and in any case the last one.
        held = ids[: remembered.exact(start - 1 if decodes else min(start - 1 + known, stop - 2))]
        with self._prefix.evaluation(held, stop - 1, reuse=reuse) as reused:
            score_tokens(self._runner, ids[:stop], start, rows, reused, nll, greedy, progress)
        if reuse and decodes:
            remembered.add(ids[reused.tokens : start - 1])
        elif reuse:
            remembered.add(ids[reused.tokens : stop])
            remembered.add_scores(start, nll, greedy)
            self.cache.take_snapshot(stop - 1)
        return Scores(nll, greedy, reused.tokens, positions_read(self.profile.policy, start, stop))

    def score_continuations(
        self,
        prefix: Sequence[int] | np.ndarray,
        continuations: Sequence[Sequence[int] | np.ndarray],
        *,
        reuse: bool = False,
        progress: Progress | None = None,
    ) -> list[Scores]:
        """Scores many endings of one prompt, which is evaluated once.

        Each ending is a sequence of its own that shares the prompt's pages. The bits are those of
        `score([*prefix, *ending], len(prefix))` under dense attention, whatever the policy.

        Args:
            prefix: token IDs, at least one.
            continuations: token IDs of each ending, at least one each.
            reuse: begin with what the session holds of the prompt, which is remembered afterwards.
            progress: called with (positions evaluated, positions to evaluate).

        Returns:
            NLL and greedy tokens of each ending.

        Raises:
            InputError: tokens that cannot be used, or what `check_continuations` refuses.
            RunError: a NaN or infinite NLL, or no memory for the sequences.
        """
        ids = checked_ids(prefix, self.spec.vocab_size, self.context)
        endings = [checked_ids(ending, self.spec.vocab_size, self.context) for ending in continuations]
        check_continuations(self.profile.policy, len(ids), list(map(len, endings)), self.context)
        return Forks(self._runner, ids, endings).run(
            self._prefix, reuse, progress or (lambda done, total: None)
        )

    def step(self, tokens: Sequence[int] | np.ndarray) -> np.ndarray:
        """Evaluates tokens after those that the cache holds; the logits after the last, float32 [V].

        For decoding of one's own; `reset` begins anew. The cache grows as it must, by doubling. The tokens
        are of the prompt role: they attend densely under every policy.

        Raises:
            InputError: tokens that cannot be used, or more positions than the context has.
            RunError: no memory to grow, or logits that are not finite.
        """
        held = self.cache.held
        tokens = checked_ids(tokens, self.spec.vocab_size, self.context, held)
        self._prefix.forget()
        if not held:
            self.cache.begin(0, 1)  # a step that was cut off may have left pages
        self._runner.make_room(held + len(tokens))
        return evaluate_tokens(self._runner, tokens, held, Reused(held), lambda done: None)

    def reset(self) -> None:
        """Holds no sequence and remembers no tokens; the pages stay allocated."""
        self._prefix.forget()
        self.cache.begin(0, 1)

    def logits(self, ids: Sequence[int] | np.ndarray, rows: Sequence[int] | None = None) -> np.ndarray:
        """Logits after some positions, float32 [len(rows), V].

        Memory grows with len(rows) · V: for whole texts use `score`.

        Args:
            ids: token IDs [n].
            rows: positions whose next-token logits are wanted; None means all n.

        Raises:
            InputError: a position outside the sequence, or tokens that cannot be used.
        """
        ids = checked_ids(ids, self.spec.vocab_size, self.context)
        wanted = np.arange(len(ids)) if rows is None else checked_rows(rows, len(ids))
        with self._prefix.evaluation(ids[:0], int(wanted.max()) + 1, reuse=False):
            return read_logits(self._runner, ids, wanted)

    def logit_blocks(
        self, ids: Sequence[int] | np.ndarray, start: int = 1, *, rows: int = 128
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Logits that predict the positions from `start` on, in blocks, while the text is evaluated.

        Nothing else may use the session before the last block.

        Args:
            ids: token IDs [n].
            start: first position to predict, at least 1.
            rows: most positions a block; it does not change a bit.

        Yields:
            (first position of the block, float32 [r, V]).

        Raises:
            InputError: tokens or a range that cannot be used.
            RunError: logits that are not finite.
        """
        ids = checked_ids(ids, self.spec.vocab_size, self.context)
        if not 1 <= start < len(ids):
            raise InputError(f"start {start} is not a position from 1 to {len(ids) - 1}")
        with self._prefix.evaluation(ids[:0], len(ids) - 1, reuse=False):
            yield from read_logit_blocks(self._runner, ids[:-1], start - 1, row_bucket(rows))

    def generate(
        self,
        ids: Sequence[int] | np.ndarray,
        max_new_tokens: int = 64,
        *,
        sampling: Sampling = GREEDY,
        logprobs: bool = False,
        stop_ids: Collection[int] | None = None,
        reuse: bool = False,
        progress: Progress | None = None,
        on_tokens: Callable[[list[int]], None] | None = None,
    ) -> Generation:
        """Continues a prompt, several tokens a device call.

        Args:
            ids: the prompt's token IDs, at least one.
            max_new_tokens: most tokens to add; 0 evaluates the prompt only.
            sampling: how tokens are chosen; greedily by default.
            logprobs: whether the log-probabilities of the new tokens are returned.
            stop_ids: tokens that end the continuation; None means the model's own.
            reuse: begin with what the session holds of the prompt; at least its last token is evaluated
                again. Prompt and new tokens are remembered afterwards; new ones only if attention is dense.
            progress: called with (positions evaluated, most positions).
            on_tokens: called with new tokens as they come; device calls are then shorter.

        Raises:
            InputError: no prompt, a token outside the vocabulary, or prompt + max(max_new_tokens − 1, 0)
                positions above the context.
            RunError: logits that are not finite.
        """
        ids = checked_ids(ids, self.spec.vocab_size, self.context)
        needed = positions_needed(len(ids), max_new_tokens, self.context)
        stops = sorted(self._model.stop_ids if stop_ids is None else stop_ids)
        if len(stops) > STOP_TOKENS:
            raise InputError(f"{len(stops)} stop tokens are above the {STOP_TOKENS} that a call watches for")
        report = progress or (lambda done, total: None)
        with self._prefix.evaluation(ids[:-1], needed, reuse=reuse) as reused:
            report(reused.tokens, needed)
            continuation = Continuation(self._runner, ids, sampling, logprobs, stops, reused)
            generation = continuation.run(max_new_tokens, lambda done: report(done, needed), on_tokens)
        if reuse:
            self._prefix.tokens.add(ids[reused.tokens :])
            if not self.profile.policy.is_decode_only:
                self._prefix.tokens.add(np.array(generation.token_ids, np.int32), generated=True)
        return generation
