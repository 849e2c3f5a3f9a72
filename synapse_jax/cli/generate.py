"""`synapse generate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.inputs import (
    Tokens,
    check_chat,
    define_chat,
    open_model,
    read_chat,
    read_input,
    read_prompts,
)
from synapse_jax.cli.output import optional_file, save, show
from synapse_jax.cli.progress import Progress, say
from synapse_jax.cli.sampling_flags import define_sampling, sampling_from
from synapse_jax.cli.sessions import kv_memory, open_session, timed
from synapse_jax.errors import InputError
from synapse_jax.evals import record as records
from synapse_jax.io.model_file import ModelFile
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.runtime.plan import SMALL_ROWS, generation_entries, positions_needed
from synapse_jax.spec.runtime import resolve
from synapse_jax.spec.sampling import Sampling

if TYPE_CHECKING:  # bad input is refused before jax starts
    from synapse_jax.runtime.results import Generation
    from synapse_jax.runtime.session import Session

SOURCES = ("prompt", "prompt_file", "messages_file", "tokens", "tokens_file", "prompts_file")


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    shared.define_model(values)
    flags.DEFINE_string("prompt", None, "The prompt.", flag_values=values)
    flags.DEFINE_string(
        "prompt_file", None, "A file that is the prompt, every byte of it.", flag_values=values
    )
    shared.define_tokens(values)
    flags.DEFINE_string(
        "prompts_file",
        None,
        'Many prompts for one session: lines of {"prompt": "…"} or {"tokens": […]}.',
        flag_values=values,
    )
    flags.DEFINE_bool(
        "reuse_prefix",
        False,
        "With --prompts-file: a prompt is evaluated from where it differs from the one before.",
        flag_values=values,
    )
    define_chat(values)
    flags.DEFINE_integer(
        "max_new_tokens",
        128,
        "Most tokens to add; 0 evaluates the prompt only.",
        lower_bound=0,
        flag_values=values,
    )
    define_sampling(values)
    flags.DEFINE_bool(
        "logprobs", False, "Put the log-probability of every new token into the record.", flag_values=values
    )
    flags.DEFINE_bool("stream", False, "Print the text as it comes.", flag_values=values)
    shared.define_runtime(values, context=None)
    shared.define_progress(values)
    shared.define_output(values)


def run(values: flags.FlagValues) -> int:
    """Continues the prompts and prints the texts."""
    source = shared.choose_one(values, SOURCES)
    check_chat(values, source)
    if values.stream and values.json:
        raise InputError("--stream prints the text and --json prints the record: choose one")
    if values.stream and source == "prompts_file":
        raise InputError("--stream shows one text as it comes, not those of --prompts-file")
    if values.reuse_prefix and source != "prompts_file":
        raise InputError("--reuse-prefix goes with --prompts-file: one prompt has nothing to reuse")
    sampling, profile = sampling_from(values), shared.profile_from(values)
    with optional_file(values.output) as output, open_model(values) as model:
        resolved = resolve(profile, model.spec)
        tokenizer = model.tokenizer  # the text needs it, whatever the prompt is
        prompts = _read_prompts(values, source, model)
        assert resolved.context is not None
        work = _Work(values, prompts, sampling, resolved.context)
        session = open_session(values, model, profile, work.entries, max(work.positions))
        stream = _Stream(tokenizer) if values.stream else None
        generations, seconds = timed(lambda: work.run(session, stream), session)
        results = [
            _result(tokenizer, prompt, generation, sampling)
            for prompt, generation in zip(prompts, generations, strict=True)
        ]
        evaluated = [token for tokens in work.evaluated for token in tokens]
        if source == "prompts_file":
            for result, prompt, tokens in zip(results, prompts, work.evaluated, strict=True):
                result["tokens"] = records.tokens_summary(prompt.ids, tokens)
        record = records.build_record(
            "generate",
            arguments=shared.given_arguments(values),
            result={"prompts": results} if source == "prompts_file" else results[0],
            model=model,
            session=session,
            ids=[token for prompt in prompts for token in prompt.ids],
            evaluated=evaluated,
            timings=records.Timings(session.load_s, session.compile_s, seconds, len(evaluated)),
        )
        save(output, record)
    show(values, record, [])
    if stream is not None:
        stream.close()
    elif not values.json:
        for result in results:
            print(result["text"])
    if not values.json:
        _say_figures(results, record, session, say(values.progress))
    return 0


def _read_prompts(values: flags.FlagValues, source: str, model: ModelFile) -> list[Tokens]:
    """Token IDs of every prompt; none is empty."""
    if source == "prompts_file":
        named = read_prompts(values.prompts_file, model)
    else:
        is_chat = values.chat or source == "messages_file"
        prompt = read_chat(values, source, model) if is_chat else read_input(values, source, model)
        named = [(prompt, f"--{source.replace('_', '-')}")]
    for prompt, name in named:
        if not prompt.ids:
            raise InputError(f"{name} is empty and the vocabulary adds no BOS: nothing to continue")
    return [prompt for prompt, _ in named]


class _Work:
    """The prompts of a command, checked before anything is compiled, and how they are run."""

    def __init__(self, values: flags.FlagValues, prompts: Sequence[Tokens], sampling: Sampling, context: int):
        self._values, self._prompts, self._sampling = values, prompts, sampling
        most = values.max_new_tokens
        self.positions = [positions_needed(len(prompt.ids), most, context) for prompt in prompts]
        """Positions that each prompt needs."""
        entries = {
            entry
            for prompt in prompts
            for entry in generation_entries(len(prompt.ids), most, sampling, values.logprobs)
        }
        self.entries = sorted(entries | ({("step", SMALL_ROWS)} if values.reuse_prefix else set()))
        """(entry, rows) pairs that will be used."""
        self.evaluated: list[list[int]] = []
        """Tokens that were evaluated, by prompt."""

    def run(self, session: Session, stream: _Stream | None) -> list[Generation]:
        """Continues every prompt, one after the other."""
        # A bar and the text would write over each other.
        mode = "none" if self._values.stream else self._values.progress
        progress = Progress(mode, "generate", "tokens", lambda: kv_memory(session))
        generations, before, whole = [], 0, sum(self.positions)
        for prompt, positions in zip(self._prompts, self.positions, strict=True):

            def report(done: int, _: int, before: int = before) -> None:
                progress(before + done, whole)

            generation = session.generate(
                prompt.ids,
                self._values.max_new_tokens,
                sampling=self._sampling,
                logprobs=self._values.logprobs,
                reuse=self._values.reuse_prefix,
                progress=report,
                on_tokens=stream,
            )
            generations.append(generation)
            self.evaluated.append(session.evaluated_ids.tolist())
            before += positions
        progress.close()
        return generations


def _result(
    tokenizer: Tokenizer, prompt: Tokens, generation: Generation, sampling: Sampling
) -> dict[str, Any]:
    return {
        "text": tokenizer.decode(generation.token_ids),
        **dataclasses.asdict(generation),
        "sampling": dataclasses.asdict(sampling),
        "chat": prompt.chat,
    }


class _Stream:
    """Prints tokens as text: whole characters only, at once."""

    def __init__(self, tokenizer: Tokenizer):
        self._decoder = tokenizer.decoder()

    def __call__(self, tokens: Sequence[int]) -> None:
        print(self._decoder.feed(tokens), end="", flush=True)

    def close(self) -> None:
        """Prints what is left of a character that never became whole, and a newline."""
        print(self._decoder.finish())


def _say_figures(results: Sequence[dict], record: dict, session: Session, log) -> None:
    for index, result in enumerate(results):
        name = f"prompt {index + 1}: " if len(results) > 1 else ""
        reused = f", {result['reused_tokens']} reused" if result["reused_tokens"] else ""
        log(
            f"{name}{result['prompt_tokens']} prompt tokens{reused}, {len(result['token_ids'])} new, "
            f"{result['finish_reason']}"
        )
        if result["reuse_note"]:
            log(f"{name}{result['reuse_note']}")
    speed = record["timings"]["tokens_per_second"]
    log(("" if speed is None else f"{speed:.1f} tokens/s, ") + kv_memory(session))
    log(f"profile {record['fingerprints']['profile']}")
