"""Controls by name."""

from __future__ import annotations

from synapse_jax.errors import InputError
from synapse_jax.evals.controls.control import Control
from synapse_jax.io.quoting import quote

ENGINES = ("llama.cpp", "transformers")


def open_control(given: str, context: int, threads: int) -> Control:
    """The engine of `llama.cpp:FILE.gguf` or `transformers:FOLDER`.

    Args:
        given: the engine and its model.
        context: most positions.
        threads: threads that compute, where the engine takes a number.

    Raises:
        InputError: there is no such engine, it is not installed, or it does not load the model.
    """
    engine, colon, path = given.partition(":")
    if engine not in ENGINES or not colon or not path:
        raise InputError(f"control {quote(given)} is not llama.cpp:FILE.gguf or transformers:FOLDER")
    if engine == "llama.cpp":
        from synapse_jax.evals.controls.llama_cpp import LlamaCpp

        return LlamaCpp(path, context, threads)
    from synapse_jax.evals.controls.hugging_face import Transformers

    return Transformers(path)
