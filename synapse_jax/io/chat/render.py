"""Chat templates are run in a child process with limits; this is the side that starts it."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from synapse_jax.errors import InputError, RunError
from synapse_jax.io.chat.guard import without

_WORKER = Path(__file__).with_name("worker.py")
_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP")
"""What an interpreter may need of the environment; tokens and passwords stay out of the child's sight."""


@dataclasses.dataclass(frozen=True)
class RenderLimits:
    """What a chat template may use."""

    seconds: float = 5.0
    """Wall-clock time of the template; after one more second its process is killed whatever it does."""
    memory_bytes: int = 512 * 2**20
    """Address space of the process, where the system can limit it."""
    output_chars: int = 1_000_000
    """Longest text, in characters."""
    template_chars: int = 1_000_000
    """Longest template, in characters."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0:
                raise InputError(f"chat limits: {field.name} is {getattr(self, field.name)}, not above 0")


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What a template made."""

    text: str
    """The text, with the mark in every control token that the template spells out."""
    literals: tuple[str, ...]
    """Every string that the template spells out, and the special tokens it was given."""


def render_template(
    template: str,
    variables: Mapping[str, Any],
    *,
    source: str,
    special_tokens: Mapping[str, str],
    control_texts: Sequence[str],
    guard: str,
    mark: str,
    now: datetime.datetime,
    limits: RenderLimits,
) -> Rendered:
    """Renders a template in a child process: about 0.15 s, nearly all of it Python's start-up.

    Args:
      template: jinja2 source.
      variables: What the template sees, JSON values only.
      source: Name of the template's file, for messages.
      special_tokens: Variables that hold tokens, for example `bos_token`.
      control_texts: Texts of control tokens, to be marked where the template spells them out.
      mark: The character that goes after the first and before the last
        character of each of these; it must not occur in any argument.
      guard: A character in the variables that messages of errors leave out.
      now: What `strftime_now` shows.
      limits: What the template may use.

    Raises:
      InputError: the template is wrong, refuses the messages, or hits a limit;
        one line that names the source and, where known, the template's line.
      RunError: no child process could be started.
    """
    if len(template) > limits.template_chars:
        raise InputError(
            f"{source}: chat template has {len(template)} characters; the limit is {limits.template_chars}"
        )
    request = {
        "path": _paths(),
        "template": template,
        "variables": {**variables, **special_tokens},
        "special": list(special_tokens),
        "tokens": list(control_texts),
        "mark": mark,
        "now": now.isoformat(),
        "seconds": limits.seconds,
        "memory_bytes": limits.memory_bytes,
        "output_chars": limits.output_chars,
    }
    reply = _ask(json.dumps(request).encode(), source, limits)
    if "error" in reply:
        reply["message"] = without(reply["message"], guard, mark)
        raise InputError(_message(reply, source, limits))
    return Rendered(reply["text"], tuple(reply["literals"]))


def one_line(text: str) -> str:
    """A text on one line: what does not print is escaped, and no more than 300 characters are shown."""
    cut = text if len(text) <= 300 else f"{text[:300]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def _ask(request: bytes, source: str, limits: RenderLimits) -> dict[str, Any]:
    # -I -S: no settings from the environment, no start-up files of the user. The worker is given as a
    # path because `-m synapse_jax…` would import the package around it.
    command = [sys.executable or "python3", "-I", "-S", "-B", os.fspath(_WORKER)]
    environment = {name: value for name, value in os.environ.items() if name in _KEPT}
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, timeout=limits.seconds + 1, env=environment
        )
    except subprocess.TimeoutExpired:
        raise InputError(_message({"error": "time"}, source, limits)) from None
    except OSError as error:
        raise RunError(f"a process for the chat template of {source} could not be started: {error}") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        pass
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    if last and last[0].startswith(("ModuleNotFoundError", "ImportError")):
        raise RunError(f"the process for chat templates could not be started: {one_line(last[0])}")
    if last and last[0].endswith("_TimeUp"):  # it came after the text was there
        raise InputError(_message({"error": "time"}, source, limits))
    if last and last[0].startswith("MemoryError"):
        raise InputError(_message({"error": "memory"}, source, limits))
    raise InputError(
        f"{source}: chat template ended its process (exit status {done.returncode})"
        + (f": {one_line(last[0])}" if last else "")
    )


def _message(reply: dict[str, Any], source: str, limits: RenderLimits) -> str:
    where = f"{source}: chat template"
    if reply.get("line"):
        where += f", line {reply['line']}"
    message = one_line(reply.get("message", ""))
    return where + {
        "time": f": not done after {limits.seconds:g} s, the limit",
        "memory": f": needs more than {limits.memory_bytes / 2**20:g} MiB of memory, the limit",
        "depth": ": nests or calls itself too deeply",
        "output": f": its text is longer than {limits.output_chars} characters, the limit",
        "refused": f" refuses the messages: {message}",
    }.get(reply["error"], f": {message}")


def _paths() -> list[str]:
    """Folders of jinja2 and of what it imports: the child reads no site folders of its own."""
    folders = []
    for name in ("jinja2", "markupsafe"):
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise RunError(f"chat templates need the package {name}, which is not installed")
        folders.append(os.fspath(Path(found.origin).parents[1]))
    return sorted(set(folders))
