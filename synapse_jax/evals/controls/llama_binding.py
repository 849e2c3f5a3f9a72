"""llama.cpp through its Python binding (package llama-cpp-python, extra `control`)."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from synapse_jax.errors import InputError, RunError
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
"""Tokens a batch: so many rows of logits exist at a time."""


class LlamaBinding:
    """A GGUF file in llama.cpp on the CPU: F32 cache, no flash attention.

    llama.cpp's quantized products round activations as well: for parity give it a file dequantized to F32.

    Args:
        path: the file.
        context: most positions.
        threads: threads that compute.

    Raises:
        InputError: the binding is not installed, or llama.cpp does not load the file.
    """

    def __init__(self, path: str | Path, context: int, threads: int):
        try:
            import llama_cpp  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise InputError("llama.cpp needs llama-cpp-python: pip install 'synapse-jax[control]'") from None
        except OSError as error:
            # The binding without a library of its own: LLAMA_CPP_LIB_PATH names a folder that has one.
            raise InputError(f"llama.cpp: llama-cpp-python finds no library: {error}") from None
        self._api: Any = llama_cpp
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            raise InputError(f"{shown_path(path)}: llama.cpp does not load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, BATCH, BATCH
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        # Layers behind a window attend to it alone: llama.cpp would keep, and score, every key by default.
        params.swa_full = False
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise InputError(f"{shown_path(path)}: llama.cpp makes no context of {context} positions")
        self._memory = llama_cpp.llama_get_memory(self._context)
        vocabulary: Any = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    @property
    def name(self) -> str:
        """Engine and version."""
        return f"llama.cpp of llama-cpp-python {self._api.__version__}"

    def close(self) -> None:
        """Frees what the engine holds."""
        self._api.llama_batch_free(self._batch)
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def score(self, ids: np.ndarray, protocol: Protocol) -> Iterator[ControlScores]:
        """See `Control`."""
        for chunk in protocol.cut(ids):
            yield self._score_chunk(chunk, protocol.start)

    def _score_chunk(self, ids: np.ndarray, start: int) -> ControlScores:
        """The last token is evaluated too: it is one of the chunk's in llama-perplexity."""
        self._api.llama_memory_clear(self._memory, True)
        nll, greedy, seen = [], [], []
        for first in range(0, len(ids), BATCH):
            tokens = ids[first : first + BATCH]
            wanted = np.arange(first, first + len(tokens)) >= start - 1
            wanted[len(ids) - 1 - first :] = False
            logits_RV = self._decode(tokens, first, wanted)
            seen += self._handed_over(len(tokens))
            if logits_RV is not None:
                targets = ids[first + 1 + np.flatnonzero(wanted)]
                block_nll, block_greedy = nll_and_greedy(logits_RV, targets)
                nll.append(block_nll)
                greedy.append(block_greedy)
        evaluated = self._evaluated(seen)
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
        self._api.llama_memory_clear(self._memory, True)
        seen: list[int] = []
        logits_RV = None
        for first in range(0, len(ids), BATCH):
            tokens = ids[first : first + BATCH]
            last = np.arange(first, first + len(tokens)) == len(ids) - 1
            logits_RV = self._decode(tokens, first, last)
            seen += self._handed_over(len(tokens))
            if progress is not None:
                progress(len(seen))
        evaluated, new = self._evaluated(seen), Greedy(count, stop_ids, beside)
        while not new.is_done:
            assert logits_RV is not None
            new.take(logits_RV[0])
            if not new.is_done:
                token = np.array(new.tokens[-1:], np.int32)
                logits_RV = self._decode(token, len(ids) + len(new.tokens) - 1, np.ones(1, bool))
        return ControlText(tuple(new.tokens), None, evaluated, new.stopped, new.margin, self._vocab_size)

    def _decode(self, tokens: np.ndarray, first: int, wanted: np.ndarray) -> np.ndarray | None:
        """Evaluates a batch; logits of the wanted rows, float32 [R, V], valid until the next batch."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for row, token in enumerate(tokens.tolist()):
            batch.token[row], batch.pos[row] = token, first + row
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
            batch.logits[row] = bool(wanted[row])
        code = self._api.llama_decode(self._context, batch)
        if code:
            raise RunError(f"llama.cpp: llama_decode returned {code} at position {first}")
        rows = int(wanted.sum())
        if not rows:
            return None
        pointer = self._api.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, shape=(rows, self._vocab_size))

    def _handed_over(self, count: int) -> list[int]:
        """The tokens in the batch that was decoded."""
        return [self._batch.token[row] for row in range(count)]

    def _evaluated(self, seen: list[int]) -> Evaluated:
        """By the engine's own count of positions; the digest is of the tokens that its batches held."""
        count = self._api.llama_memory_seq_pos_max(self._memory, 0) + 1
        return Evaluated(count, Evaluated.of(seen).sha256)
