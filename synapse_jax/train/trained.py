"""A decoder that was trained, as all that leaves training sees it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.io.families import FAMILIES
from synapse_jax.io.families.synapse import TRAINING
from synapse_jax.spec.model import ModelSpec
from synapse_jax.train.corpus import Corpus
from synapse_jax.train.shape import shape_of
from synapse_jax.train.vocabulary import PairVocabulary

Provenance = Mapping[str, str | int | float]
"""Where a model is from: `general.…` keys of the GGUF specification, which are texts, and keys that begin
with `TRAINING_KEY`."""

TRAINING_KEY = f"synapse.{TRAINING}"
"""How keys about the training begin."""
_KEY = re.compile(rf"(general|{re.escape(TRAINING_KEY[:-1])})(\.[a-z0-9_]+)+")
_OWN_KEYS = frozenset(
    f"general.{key}" for key in ("architecture", "alignment", "file_type", "quantization_version", "type")
)
"""Keys that say how a file is to be read."""


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedDecoder:
    """Spec, weights and vocabulary of a decoder that a `DecoderShape` describes. A session can run it.

    Raises:
      InputError: the model is not such a decoder, the vocabulary is of another size, a weight is not finite,
        or a key of the provenance is not one that a file may have.
      ValueError: a weight is missing, too many, or of another shape or type.
    """

    spec: ModelSpec
    """What it computes."""
    weights: Mapping[str, np.ndarray] = dataclasses.field(repr=False)
    """float32 by canonical name as in `io.families.decoder.decoder_weights`, rotary rows half-split."""
    vocabulary: PairVocabulary
    """Its tokens."""
    provenance: Provenance = dataclasses.field(default_factory=dict)
    """Written to its files."""

    def __post_init__(self):
        shape_of(self.spec)
        if self.vocabulary.size != self.spec.vocab_size:
            raise InputError(
                f"model: vocab_size is {self.spec.vocab_size}, the vocabulary has {self.vocabulary.size}"
            )
        shapes = {name: source.shape for name, source in FAMILIES[self.spec.arch].weights(self.spec).items()}
        if set(self.weights) != set(shapes):
            raise ValueError(f"weights of other names: {sorted(set(self.weights) ^ set(shapes))}")
        for name, shape in shapes.items():
            array = self.weights[name]
            if array.shape != shape or array.dtype != np.float32:
                raise ValueError(f"weight {name} is {array.dtype} {array.shape}, not float32 {shape}")
            if not np.isfinite(array).all():
                raise InputError(f"weight {name} holds a value that is not finite: the training has diverged")
        for key, value in self.provenance.items():
            _check_provenance(key, value)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a continuation."""
        return self.vocabulary.tokenizer.stop_ids

    def read_weight(self, name: str) -> np.ndarray:
        """A copy of one weight."""
        return self.weights[name].copy()


def corpus_provenance(corpus: Corpus, vocabulary: PairVocabulary) -> dict[str, str | int | float]:
    """What a file says about the texts that its model was trained on."""
    facts = {
        "corpus": corpus.name,
        "corpus_license": corpus.license,
        "corpus_sha256": corpus.sha256,
        "vocabulary_sha256": vocabulary.sha256,
    }
    return {TRAINING_KEY + key: value for key, value in facts.items() if value}


def _check_provenance(key: str, value: object) -> None:
    if not _KEY.fullmatch(key) or key in _OWN_KEYS:
        raise InputError(f"provenance: {key!r} is not a key general.… or {TRAINING_KEY}… that is free to use")
    kinds = str if key.startswith("general.") else (str, int, float)
    if not isinstance(value, kinds) or (isinstance(value, int) and not 0 <= value < 2**63):
        raise InputError(f"provenance: {key} is {value!r}, which a file cannot hold")
