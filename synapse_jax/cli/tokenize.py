"""`synapse tokenize`."""

from __future__ import annotations

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import encode, open_model, read_text_input
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.evals.record import build_record


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    flags.DEFINE_string("prompt", None, "The text.", flag_values=values)
    flags.DEFINE_string("text_file", None, "A file that is the text, every byte of it.", flag_values=values)
    flags.DEFINE_bool(
        "special",
        False,
        "Let control tokens in the text (<|im_start|>) become their IDs.",
        flag_values=values,
    )
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Prints the token IDs of a text; starts no device."""
    source = shared.choose_one(values, ("prompt", "text_file"))
    with optional_file(values.output) as output, open_model(values, weights=False) as model:
        text, shown = read_text_input(values, source)
        ids = encode(model.tokenizer, text, shown, parse_special=values.special)
        record = build_record("tokenize", result={"token_ids": ids}, model=model, ids=ids)
        save(output, record)
    table = [
        ("tokens", str(len(ids))),
        ("sha256", record["tokens"]["sha256"]),
        ("ids", " ".join(map(str, ids))),
    ]
    show(values, record, table)
    return 0
