"""A corpus, a vocabulary and decoders with random weights for the tests of `train`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

import synapse_jax
from synapse_jax.io.families import FAMILIES
from synapse_jax.train.corpus import Corpus, Document, make_corpus
from synapse_jax.train.shape import DecoderShape
from synapse_jax.train.trained import TrainedDecoder
from synapse_jax.train.vocabulary import PairVocabulary, train_vocabulary

SIZE = 512
"""Tokens of the vocabulary."""
POLICY = "compressed:window=64,block=4"


@functools.cache
def own_sources() -> Corpus:
    """The sources of this package: code that is always there."""
    package = Path(synapse_jax.__file__).parent
    paths = sorted(package.rglob("*.py"))
    documents = [Document(path.relative_to(package).as_posix(), path.read_bytes()) for path in paths]
    return make_corpus("own sources", documents, license="Apache-2.0")


@functools.cache
def own_vocabulary() -> PairVocabulary:
    """A vocabulary of the train split of `own_sources`."""
    return train_vocabulary(own_sources().train, SIZE)


def random_decoder(
    *, provenance: dict[str, Any] | None = None, seed: int = 0, **sizes: Any
) -> TrainedDecoder:
    """A decoder of which nothing is trained but the vocabulary.

    Attention is peaked, so that an error in rotary positions shows, but less than in `tests.tiny`: rounding is
    not to hide it.
    """
    small = dict(vocabulary=SIZE, width=64, layers=2, query_heads=4, kv_heads=2, head_size=32, ffn_width=96)
    spec = DecoderShape(**{**small, "context": 256, **sizes}).spec()
    random = np.random.RandomState(seed)
    weights = {}
    for name, source in FAMILIES[spec.arch].weights(spec).items():
        part = name.rpartition(".")[2]
        scale = 0.1 if len(source.shape) == 1 else (2 if part in ("q", "k") else 1) / source.shape[1] ** 0.5
        array = random.standard_normal(source.shape) * scale
        weights[name] = (array + (len(source.shape) == 1)).astype(np.float32)
    return TrainedDecoder(spec, weights, own_vocabulary(), provenance or {})
