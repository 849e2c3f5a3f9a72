"""`synapse tokenize`."""

from __future__ import annotations

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import argument_text, encode, open_model
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.evals.record import build_record
from synapse_jax.io.text_file import read_text


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    flags.DEFINE_string("prompt", None, "The text.", flag_values=values)
    flags.DEFINE_string(
        "text_file", None, "A UTF-8 file that is the text, every byte of it.", flag_values=values
    )
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Prints the token IDs of a text; starts no device."""
    source = shared.choose_one(values, ("prompt", "text_file"))
    with optional_file(values.output) as output, open_model(values, weights=False) as model:
        given: str = values[source].value  # type: ignore[assignment]
        text = argument_text(given, "--prompt") if source == "prompt" else read_text(given)
        ids = encode(model.tokenizer, text)
        record = build_record("tokenize", result={"token_ids": ids}, model=model, ids=ids)
        save(output, record)
    table = [
        ("tokens", str(len(ids))),
        ("sha256", record["tokens"]["sha256"]),
        ("ids", " ".join(map(str, ids))),
    ]
    show(values, record, table)
    return 0
