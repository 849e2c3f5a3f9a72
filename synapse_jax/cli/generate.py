"""`synapse generate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import check_chat, define_chat, open_model, read_chat, read_input
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress, say
from synapse_jax.cli.sessions import open_session, timed
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.runtime.plan import generation_entries, positions_needed
from synapse_jax.spec.runtime import resolve


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    flags.DEFINE_string("prompt", None, "The prompt.", flag_values=values)
    flags.DEFINE_string(
        "prompt_file", None, "A file that is the prompt, every byte of it.", flag_values=values
    )
    shared.define_tokens(values)
    define_chat(values)
    flags.DEFINE_integer(
        "max_new_tokens",
        128,
        "Most tokens to add; 0 evaluates the prompt only.",
        lower_bound=0,
        flag_values=values,
    )
    shared.define_sampling(values)
    flags.DEFINE_bool(
        "logprobs", False, "Put the log-probability of every new token into the record.", flag_values=values
    )
    flags.DEFINE_bool("stream", False, "Print the text as it comes.", flag_values=values)
    shared.define_runtime(values, context=None)
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Continues the prompt and prints the text."""
    source = shared.choose_one(values, ("prompt", "prompt_file", "messages_file", "tokens", "tokens_file"))
    check_chat(values, source)
    if values.stream and values.json:
        raise InputError("--stream prints the text and --json prints the record: choose one")
    sampling, profile = shared.sampling_from(values), shared.profile_from(values)
    with optional_file(values.output) as output, open_model(values) as model:
        resolved = resolve(profile, model.spec)
        tokenizer = model.tokenizer  # the text needs it, whatever the prompt is
        is_chat = values.chat or source == "messages_file"
        prompt = read_chat(values, source, model) if is_chat else read_input(values, source, model)
        if not prompt.ids:
            raise InputError(
                f"--{source.replace('_', '-')} is empty and the vocabulary adds no BOS: nothing to continue"
            )
        assert resolved.context is not None
        needed = positions_needed(len(prompt.ids), values.max_new_tokens, resolved.context)
        entries = generation_entries(len(prompt.ids), values.max_new_tokens, sampling, values.logprobs)
        session = open_session(values, model, profile, entries, needed)
        stream = _Stream(tokenizer) if values.stream else None
        # A bar and the text would write over each other.
        progress = Progress("none" if values.stream else values.progress, "generate", "tokens")
        generation, seconds = timed(
            session,
            lambda: session.generate(
                prompt.ids,
                values.max_new_tokens,
                sampling=sampling,
                logprobs=values.logprobs,
                progress=progress,
                on_tokens=stream,
            ),
        )
        progress.close()
        # The last new token is not evaluated, unless a stop token came after it.
        evaluated = (prompt.ids + list(generation.token_ids))[: session.cache.held]
        timings = records.Timings(session.load_s, session.compile_s, seconds, len(evaluated))
        text = tokenizer.decode(generation.token_ids)
        result = {
            "text": text,
            **dataclasses.asdict(generation),
            "sampling": dataclasses.asdict(sampling),
            "chat": prompt.chat,
        }
        record = records.build_record(
            "generate",
            result=result,
            model=model,
            session=session,
            ids=prompt.ids,
            evaluated=evaluated,
            timings=timings,
        )
        save(output, record)
    show(values, record, [])
    if stream is not None:
        stream.close()
    elif not values.json:
        print(text)
    if not values.json:
        _say_speed(record, say(values.progress))
    return 0


class _Stream:
    """Prints tokens as text: whole characters only, at once."""

    def __init__(self, tokenizer: Tokenizer):
        self._decoder = tokenizer.decoder()

    def __call__(self, tokens: Sequence[int]) -> None:
        print(self._decoder.feed(tokens), end="", flush=True)

    def close(self) -> None:
        """Prints what is left of a character that never became whole, and a newline."""
        print(self._decoder.finish())


def _say_speed(record: dict, log) -> None:
    result, speed = record["result"], record["timings"]["tokens_per_second"]
    log(
        f"{result['prompt_tokens']} prompt tokens, {len(result['token_ids'])} new, {result['finish_reason']}"
        + ("" if speed is None else f", {speed:.1f} tokens/s")
    )
    log(f"profile {record['fingerprints']['profile']}")
