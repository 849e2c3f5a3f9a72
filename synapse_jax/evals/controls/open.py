"""Controls by name."""

from __future__ import annotations

from synapse_jax.errors import InputError
from synapse_jax.evals.controls.control import Control
from synapse_jax.io.model_file import open_model_file
from synapse_jax.io.quoting import quote
from synapse_jax.io.tokenizer import Tokenizer

FORMS = "llama.cpp:FILE.gguf, transformers:FOLDER or command:'PROGRAM ARGUMENTS'"


def open_control(given: str, context: int, threads: int, tokenizer: Tokenizer) -> Control:
    """The engine that `given`, one of `FORMS`, names.

    Args:
        given: the engine and its model, or the command line of a program of llama.cpp.
        context: most positions.
        threads: threads that compute, where the engine takes a number.
        tokenizer: decodes the tokens where the engine takes text.

    Raises:
        InputError: there is no such engine, it is not installed, or it does not load the model.
    """
    engine, _, model = given.partition(":")
    if not model:
        raise InputError(f"control {quote(given)} is not {FORMS}")
    if engine == "llama.cpp":
        from synapse_jax.evals.controls.llama_binding import LlamaBinding

        return LlamaBinding(model, context, threads)
    if engine == "transformers":
        from synapse_jax.evals.controls.hugging_face import Transformers

        return Transformers(model)
    if engine == "command":
        from synapse_jax.evals.controls.llama_command import LlamaCommand

        bos_id = tokenizer.bos_id if tokenizer.add_bos else None
        return LlamaCommand(model, lambda ids: _text_of(tokenizer, ids.tolist()), bos_id)
    raise InputError(f"control {quote(given)} is not {FORMS}")


def control_sha256(given: str) -> str:
    """SHA-256 of the model that a control was given, as `ModelFile.sha256` has it.

    Raises:
        InputError: it cannot be read.
    """
    with open_model_file(given.partition(":")[2], weights=False) as model:
        return model.sha256()


def check_scaling(scaling: str | None, given: str) -> None:
    """Refuses a scaling by flag that the control would not hear of.

    Raises:
        InputError: names both.
    """
    if scaling is not None and not given.startswith("command:"):
        raise InputError(
            f"--rope-scaling {scaling} would not reach {quote(given)}: give it a file that declares its "
            "scaling, or a command with flags of its own"
        )


def _text_of(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    """The text that encodes to `ids`, without BOS."""
    text = tokenizer.decode_bytes(ids)
    # Some vocabularies put a space before every text, and decoding keeps it.
    bare = text.removeprefix(b" ").decode("utf-8", "replace")
    return bare.encode() if tokenizer.encode(bare, add_special=False) == ids else text
