"""Synapse: a compiled-graph engine for language models on JAX.

    import synapse_jax as sj
    model = sj.load("model.gguf")
    session = sj.Session(model, sj.RuntimeProfile(context=8192))
    scores = session.score(model.tokenizer.encode("The capital of Ukraine is Kyiv"))

Names are imported when first used, so that reading a file does not start jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synapse_jax.errors import InputError as InputError
    from synapse_jax.errors import RunError as RunError
    from synapse_jax.io.model_file import ModelFile as ModelFile
    from synapse_jax.io.model_file import load as load
    from synapse_jax.runtime.results import Generation as Generation
    from synapse_jax.runtime.results import Scores as Scores
    from synapse_jax.runtime.session import Session as Session
    from synapse_jax.spec.model import ModelSpec as ModelSpec
    from synapse_jax.spec.rope import RopeProfile as RopeProfile
    from synapse_jax.spec.runtime import RuntimeProfile as RuntimeProfile
    from synapse_jax.spec.sampling import Sampling as Sampling

_HOMES = {
    "Generation": "runtime.results",
    "InputError": "errors",
    "ModelFile": "io.model_file",
    "ModelSpec": "spec.model",
    "RopeProfile": "spec.rope",
    "RunError": "errors",
    "RuntimeProfile": "spec.runtime",
    "Sampling": "spec.sampling",
    "Scores": "runtime.results",
    "Session": "runtime.session",
    "load": "io.model_file",
}

__all__ = [
    "Generation",
    "InputError",
    "ModelFile",
    "ModelSpec",
    "RopeProfile",
    "RunError",
    "RuntimeProfile",
    "Sampling",
    "Scores",
    "Session",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'synapse_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(f"synapse_jax.{_HOMES[name]}"), name)
