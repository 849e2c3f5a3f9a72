"""`synapse COMMAND`: dispatch, errors and exit codes."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence

from synapse_jax.cli.flags import CommandFlags, HelpRequest
from synapse_jax.cli.progress import show_warnings
from synapse_jax.errors import InputError, RunError

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

COMMANDS = {
    "score": "perplexity of a text or of tokens, by llama-perplexity's protocol",
    "compare": "two configurations on the same tokens: perplexity ratio, KL divergence, worst positions",
    "generate": "continue a prompt",
    "probe": "copy probe: how much a random sequence gains from having occurred before, by depth",
    "quality": "long-context tasks with exact answers, by length and depth, on this and other engines",
    "passkey": "a number hidden in filler: is it found, by length and depth; a process a prompt",
    "tokenize": "token IDs of a text",
    "models": "models that have a name: licence, size, digest, whether they are here",
    "inspect": "what a model file says, and every problem found",
    "train": "train a small decoder under an attention policy",
    "graph list": "compiled entries of a model and their fingerprints",
    "graph precompile": "compile what a model and profile need into the cache of graphs",
    "graph show": "IR, RoPE profile, arguments and cost of one entry",
    "graph diff": "the parts in which two graphs differ, and their texts; exit code 1 if they do",
    "graph export": "one entry as portable StableHLO, in a folder with a manifest",
    "graph run": "evaluate tokens with an exported graph and a model's weights",
    "graph verify": "whether code still lowers to checked-in manifests; exit code 1 if it does not",
}
"""Commands and what they do; `graph list` lives in `cli/graph_list.py`."""


def console_main() -> None:
    """The console script."""
    # Vocabularies are hundreds of thousands of objects that no collection frees: fewer passes over them.
    gc.set_threshold(200_000)
    for stream in (sys.stdout, sys.stderr):
        # Texts and tables are UTF-8 in every locale; a path may be anything. A closed stream is None.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Runs a command line.

    Args:
        argv: arguments without the program's name.

    Returns:
        0 done; 1 a run that failed; 2 bad usage or input; 130 interrupted. Every error is one line on
        standard error; `--debug` adds the traceback.
    """
    show_warnings()
    debug = not {"--debug", "-debug", "--debug=true", "--debug=1"}.isdisjoint(argv)
    try:
        code = _run(list(argv))
        # A reader that has gone is noticed here, not when the interpreter ends.
        print(end="", flush=True)
        return code
    except InputError as error:
        return _fail(error, BAD_INPUT, debug)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, debug)
    except BrokenPipeError:
        # The reader of our output has gone: nothing is left to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except RunError as error:
        return _fail(error, FAILED, debug)
    except Exception as error:
        return _fail(f"{type(error).__name__}: {error} (--debug shows where)", FAILED, debug)


def _run(argv: list[str]) -> int:
    try:
        return _run_command(argv)
    except HelpRequest as request:
        print(request.text)
        return DONE


def _run_command(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        if not argv:
            raise InputError(f"no command; choose from {', '.join(COMMANDS)}, or --help")
        raise HelpRequest(_overview())
    if argv[0] == "--version":
        from importlib import metadata

        print(metadata.version("synapse-jax"))
        return DONE
    name = _command_name(argv)
    module = importlib.import_module(f"synapse_jax.cli.{name.replace(' ', '_')}")
    flags = CommandFlags(name, COMMANDS[name], module.define, getattr(module, "OPERANDS", ()))
    flags.parse(argv[len(name.split()) :])
    return module.run(flags.values)


def _command_name(argv: list[str]) -> str:
    for words in (2, 1):
        if " ".join(argv[:words]) in COMMANDS:
            return " ".join(argv[:words])
    group = [name for name in COMMANDS if name.startswith(f"{argv[0]} ")]
    if group and len(argv) > 1 and argv[1] in ("-h", "--help"):
        raise HelpRequest(_overview(group))
    if group:
        raise InputError(f"{argv[0]}: choose from {', '.join(group)}")
    raise InputError(f"there is no command {argv[0]!r}; choose from {', '.join(COMMANDS)}")


def _overview(names: Sequence[str] = tuple(COMMANDS)) -> str:
    lines = ["synapse COMMAND [flags]; synapse COMMAND --help shows a command's flags", ""]
    return "\n".join(lines + [f"  {name:<12} {COMMANDS[name]}" for name in names])


def _fail(error: object, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"synapse: error: {' '.join(str(error).split())}", file=sys.stderr)
    return code
