"""Hugging Face transformers on a folder (extra `control`; torch is the user's)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.evals.controls.control import (
    ControlScores,
    ControlText,
    Evaluated,
    Evaluating,
    nll_and_greedy,
)
from synapse_jax.evals.controls.greedy import Greedy
from synapse_jax.evals.score import Protocol
from synapse_jax.io.quoting import shown_path

BATCH = 512
"""Tokens a forward pass: so many rows of logits exist at a time."""


class Transformers:
    """A Hugging Face folder in transformers: float32, on the CPU, eager attention.

    It is no control of a GGUF file: its reader drops RoPE scaling.

    Args:
        path: the folder.

    Raises:
        InputError: transformers or torch is not installed, or the folder has not all weights.
    """

    def __init__(self, path: str | Path):
        try:
            import torch  # pyright: ignore[reportMissingImports]
            import transformers  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise InputError(
                f"transformers needs torch and transformers ({error.name} is missing): "
                "pip install 'synapse-jax[control]', and torch as a build for CPUs"
            ) from None
        if not Path(path).is_dir():
            raise InputError(f"{shown_path(path)}: is not a folder")
        self._torch, self._library = torch, transformers
        self._model, found = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        # It draws weights that it does not find.
        if any(found.values()):
            raise InputError(f"{shown_path(path)}: transformers does not read all of it: {found}")
        self._model.eval()
        self._vocab_size = int(self._model.get_output_embeddings().weight.shape[0])

    @property
    def name(self) -> str:
        """Engine and version."""
        return f"transformers {self._library.__version__}, torch {self._torch.__version__}"

    def close(self) -> None:
        """Nothing outlives the object."""

    def score(self, ids: np.ndarray, protocol: Protocol) -> Iterator[ControlScores]:
        """See `Control`."""
        for chunk in protocol.cut(ids):
            yield self._score_chunk(chunk, protocol.start)

    def _score_chunk(self, ids: np.ndarray, start: int) -> ControlScores:
        nll, greedy = [], []
        cache, seen = None, []
        for first in range(0, len(ids), BATCH):
            logits_TV, cache = self._forward(ids[first : first + BATCH], cache, seen)
            rows = np.arange(max(start - 1 - first, 0), min(BATCH, len(ids) - 1 - first))
            if rows.size:
                block_nll, block_greedy = nll_and_greedy(logits_TV[rows], ids[first + 1 + rows])
                nll.append(block_nll)
                greedy.append(block_greedy)
        evaluated = self._evaluated(cache, seen)
        return ControlScores(np.concatenate(nll), np.concatenate(greedy), evaluated, self._vocab_size)

    def generate(
        self,
        ids: np.ndarray,
        count: int,
        *,
        stop_ids: Collection[int] = (),
        beside: Sequence[Collection[int]] | None = None,
        progress: Evaluating | None = None,
    ) -> ControlText:
        """See `Control`."""
        cache, seen, logits_TV = None, [], None
        for first in range(0, len(ids), BATCH):
            logits_TV, cache = self._forward(ids[first : first + BATCH], cache, seen)
            if progress is not None:
                progress(len(seen))
        evaluated, new = self._evaluated(cache, seen), Greedy(count, stop_ids, beside)
        while not new.is_done:
            assert logits_TV is not None
            new.take(logits_TV[-1])
            if not new.is_done:
                logits_TV, cache = self._forward(np.array(new.tokens[-1:], np.int32), cache, [])
        return ControlText(tuple(new.tokens), None, evaluated, new.stopped, new.margin, self._vocab_size)

    def _forward(self, tokens: np.ndarray, cache: Any, seen: list[int]) -> tuple[np.ndarray, Any]:
        """Logits [T, V] of tokens after those in the cache, and the cache."""
        given = self._torch.tensor(tokens[None].astype(np.int64))
        with self._torch.no_grad():
            out = self._model(given, past_key_values=cache, use_cache=True)
        seen += given[0].tolist()
        return out.logits[0].numpy(), out.past_key_values

    def _evaluated(self, cache: Any, seen: list[int]) -> Evaluated:
        """By the cache's own length; the digest is of the tokens that the model was called with."""
        return Evaluated(int(cache.get_seq_length()), Evaluated.of(seen).sha256)
