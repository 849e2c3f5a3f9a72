"""The synapse family: small decoders of this project that were trained with an attention policy.

Sizes, keys and tensors are those of llama, but query and key rows are half-split.
`synapse.attention.policy` is the policy's text. The architecture has a name of its own so that no program
loads such a model as a dense one.
"""

from __future__ import annotations

from synapse_jax.errors import InputError
from synapse_jax.io.families.decoder import amended, decoder_weights, read_decoder_spec
from synapse_jax.io.families.family import Family
from synapse_jax.io.gguf import GgufFile
from synapse_jax.io.quoting import quote
from synapse_jax.spec.attention import parse_attention
from synapse_jax.spec.model import ModelSpec

POLICY = "attention.policy"
"""Key of the policy, without the prefix."""
TRAINING = "training."
"""How keys about the training begin, without the prefix."""

_SHOWN = 100
"""Longest policy that a message repeats as it is."""


def trained_policy(text: str) -> str:
    """The canonical text of a policy that a model can be trained with.

    Raises:
      InputError: it is no policy, or one that only decoded tokens follow.
    """
    policy = parse_attention(text)
    if policy.is_decode_only:
        raise InputError(f"attention {text!r} is for decoded tokens only: no model is trained with it")
    return str(policy)


def _read_spec(file: GgufFile, notes: list[str]) -> ModelSpec:
    policy = _read_policy(file)
    spec = read_decoder_spec(file, "synapse", qkv_bias=False, notes=notes)
    return amended(file, spec, attention=policy)


def _read_policy(file: GgufFile) -> str:
    key = f"synapse.{POLICY}"
    text = file.require_text(key)
    try:
        policy = trained_policy(text)
    except InputError as error:
        problem = str(error) if len(text) <= _SHOWN else f"is {quote(text)}, not an attention policy"
        raise file.fail(key, problem) from None
    if policy == "dense":
        raise file.fail(key, "is 'dense': a dense model is of architecture llama")
    return policy


FAMILY = Family("synapse", _read_spec, decoder_weights, frozenset((POLICY,)), (TRAINING,))
