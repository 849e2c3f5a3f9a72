"""Flags of a command: one absl FlagValues each, and the groups that commands share."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from synapse_jax.errors import InputError
from synapse_jax.spec.rope_scaling import parse_rope_scaling
from synapse_jax.spec.runtime import RuntimeProfile

Define = Callable[[flags.FlagValues], None]


class HelpRequest(Exception):
    """Help was asked for; `text` is what to print."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text


class CommandFlags:
    """The flags of one command.

    Dashes and underscores are the same in names. A flag of another command is an error. Words without a dash
    are the values of the flags named in `operands`, in that order.
    """

    def __init__(self, command: str, summary: str, define: Define, operands: Sequence[str] = ()):
        self._command, self._summary, self._operands = command, summary, operands
        self.values = flags.FlagValues()
        define(self.values)
        flags.DEFINE_bool("debug", False, "Show the traceback of an error.", flag_values=self.values)

    def parse(self, argv: Sequence[str]) -> None:
        """Parses arguments.

        Raises:
            HelpRequest: `--help` or `-h` is among them.
            InputError: an unknown flag, a bad value, or a word that is no flag.
        """
        arguments = self._canonical(list(argv))
        try:
            self.values([self._command, *arguments])
        except flags.Error as error:
            raise InputError(f"{self._command}: {self._with_dashes(str(error))}") from None

    def _canonical(self, argv: list[str]) -> list[str]:
        """The arguments as `--name=value`, names with underscores and values as they are.

        absl then never takes a value for a flag, nor acts on its own `--flagfile` and `--undefok`.
        """
        out: list[str] = []
        operands = list(self._operands)
        words = iter(argv)
        for word in words:
            if word in ("--help", "-h", "-help"):
                raise HelpRequest(self._help())
            given, equals, value = word.partition("=")
            name = given.removeprefix("-").removeprefix("-").replace("-", "_")
            if operands and not word.startswith("-"):
                out.append(f"--{operands.pop(0)}={word}")
                continue
            if not given.startswith("-") or not name:
                raise InputError(
                    f"{self._command}: {word!r} is not a flag; values belong to flags, as in --prompt 'text'"
                )
            negated = name.removeprefix("no").removeprefix("_")
            if name not in self.values and name.startswith("no") and self._is_boolean(negated) and not equals:
                out.append(f"--no{negated}")
            elif name not in self.values:
                raise InputError(f"{self._command}: there is no flag {word!r}{self._suggestion(name)}")
            elif equals:
                out.append(f"--{name}={value}")
            elif self._is_boolean(name):
                out.append(f"--{name}")
            else:
                value = next(words, None)
                if value is None:
                    raise InputError(f"{self._command}: {given} needs a value")
                out.append(f"--{name}={value}")
        return out

    def _is_boolean(self, name: str) -> bool:
        return name in self.values and bool(self.values[name].boolean)

    def _suggestion(self, name: str) -> str:
        close = difflib.get_close_matches(name, list(self.values), 1)
        return f"; did you mean --{close[0].replace('_', '-')}?" if close else ""

    def _with_dashes(self, message: str) -> str:
        first = message.splitlines()[0]
        for name in sorted(self.values, key=len, reverse=True):
            first = first.replace(f"--{name}", f"--{name.replace('_', '-')}")
        return first

    def _help(self) -> str:
        lines = [f"synapse {self._command}: {self._summary}", ""]
        for name in self.values:
            flag = self.values[name]
            default = "" if flag.default is None or flag.boolean else f" (default {flag.default})"
            choices = getattr(flag.parser, "enum_values", None)
            value = "" if flag.boolean else f" {'|'.join(choices) if choices else flag.flag_type().upper()}"
            lines.append(f"  --{name.replace('_', '-')}{value}\n      {flag.help}{default}")
        return "\n".join(lines)


def define_model(values: flags.FlagValues) -> None:
    """`--model`: every command that opens a file."""
    flags.DEFINE_string(
        "model",
        "smollm2-135m-instruct",
        "A .gguf file, a Hugging Face folder, or a name that is fetched once: of the catalog, or "
        "hf:org/repo[/FILE.gguf].",
        flag_values=values,
    )


def define_runtime(
    values: flags.FlagValues, *, context: int | None, without: str = "the model's whole window"
) -> None:
    """Flags that become a RuntimeProfile.

    Args:
        values: of the command.
        context: the default; None leaves it to the command.
        without: what the default is then, in words.
    """
    what = without if context is None else "the protocol's"
    flags.DEFINE_integer(
        "context",
        context,
        f"Positions a sequence may have; by default {what}.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_string(
        "rope_scaling",
        None,
        "none, linear:F, or yarn:F:ORIGINAL[:key=value…]; by default what the file declares.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "precision", "f32", ["f32", "bf16"], "Type of weights and matmul inputs.", flag_values=values
    )
    flags.DEFINE_enum(
        "kv_dtype", "f32", ["f32", "bf16", "f16"], "Type of cached keys and values.", flag_values=values
    )
    flags.DEFINE_string(
        "attention",
        "dense",
        "Attention policy: dense (the file's own); window:W; compressed:window=W,block=b; or "
        "pages:budget=B,window=W with further page=16, sink=1, select=bound|random, heads=kv|query, "
        "dense_layers=0+1+28-29, seed=0. B, W and b are in tokens.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "page_size", 256, "Positions a page of the KV cache.", lower_bound=1, flag_values=values
    )
    flags.DEFINE_enum(
        "layers",
        "unrolled",
        ["unrolled", "scan"],
        "scan: equal layers as a loop, for deep models; compiles in the time of one layer, runs slower.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "kernels", "auto", ["auto", "xla"], "Kernels: xla, the plain ones; auto the best.", flag_values=values
    )
    define_device(values)


def define_device(values: flags.FlagValues) -> None:
    """`--device`."""
    flags.DEFINE_string(
        "device", "auto", "auto, or cpu, gpu, tpu or metal with an optional :index.", flag_values=values
    )


def define_output(values: flags.FlagValues) -> None:
    """Flags for where results go."""
    flags.DEFINE_bool(
        "json", False, "Print the record as one JSON object instead of a table.", flag_values=values
    )
    flags.DEFINE_string("output", None, "Write the record to this file.", flag_values=values)


def define_progress(values: flags.FlagValues) -> None:
    """`--progress`: every command that can take long."""
    flags.DEFINE_enum(
        "progress",
        "auto",
        ["auto", "bar", "lines", "none"],
        "Progress on standard error; auto is a bar on a terminal and lines elsewhere.",
        flag_values=values,
    )


def define_tokens(values: flags.FlagValues) -> None:
    """Token IDs as input."""
    flags.DEFINE_string(
        "tokens",
        None,
        "Token IDs: decimal, separated by white space or commas, or a JSON array.",
        flag_values=values,
    )
    flags.DEFINE_string("tokens_file", None, "A file of token IDs in the same form.", flag_values=values)


def define_text(values: flags.FlagValues) -> None:
    """What is scored: a text or token IDs."""
    flags.DEFINE_string(
        "text_file", None, "UTF-8 text; exactly one trailing newline is dropped.", flag_values=values
    )
    define_tokens(values)


def define_protocol(values: flags.FlagValues) -> None:
    """Which chunks and targets are scored."""
    flags.DEFINE_integer(
        "chunks", None, "Chunks of `context` tokens to score; by default all.", flag_values=values
    )
    flags.DEFINE_integer(
        "score_last",
        None,
        "Score the last N targets of a chunk instead of the protocol's half.",
        flag_values=values,
    )


def profile_from(values: flags.FlagValues) -> RuntimeProfile:
    """The runtime profile that the flags of `define_runtime` ask for."""
    return RuntimeProfile(
        context=values.context,
        rope=None if values.rope_scaling is None else parse_rope_scaling(values.rope_scaling),
        precision=values.precision,
        page_size=values.page_size,
        kv_dtype=values.kv_dtype,
        attention=values.attention,
        layers=values.layers,
        kernels="xla",  # the only ones there are
        device=values.device,
    )


_ABOUT_RESULTS = ("json", "output", "progress", "debug", "trace", "checkpoint", "resume", "verify")
_PATHS = (
    "model",
    "text_file",
    "tokens_file",
    "prompt_file",
    "messages_file",
    "prompts_file",
    "texts",
    "folder",
)


def given_arguments(values: flags.FlagValues) -> dict[str, Any]:
    """The flags that were given and decide what is computed, files by their whole path."""
    given: dict[str, Any] = {name: values[name].value for name in values if values[name].present}
    return {
        name: os.path.abspath(value) if name in _PATHS and os.path.exists(value) else value
        for name, value in sorted(given.items())
        if name not in _ABOUT_RESULTS
    }


def choose_one(values: flags.FlagValues, names: Sequence[str]) -> str:
    """The one flag of a group that is given.

    Raises:
        InputError: none or several are.
    """
    given = [name for name in names if values[name].value is not None]
    if len(given) == 1:
        return given[0]
    shown = ", ".join(f"--{name.replace('_', '-')}" for name in names)
    what = "none is" if not given else f"{' and '.join('--' + name.replace('_', '-') for name in given)} are"
    raise InputError(f"exactly one of {shown} is needed, {what} given")
