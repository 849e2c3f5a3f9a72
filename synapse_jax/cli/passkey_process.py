"""`synapse generate` in a process of its own, once for every pass-key prompt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from absl import flags

import synapse_jax
from synapse_jax.cli import flags as shared
from synapse_jax.errors import RunError
from synapse_jax.evals.passkey.fixture import PasskeyPrompt
from synapse_jax.evals.passkey.run import read_run


class PasskeyProcess:
    """Runs the command line on prompts, with the runtime flags of this one.

    Progress and warnings of the process go where ours go. A prompt's tokens are a file in a folder that is
    there as long as the object is entered. SIGTERM is then an interrupt, so that no process outlives this one
    by half an hour.
    """

    def __init__(self, values: flags.FlagValues):
        self._command = [sys.executable, "-m", "synapse_jax", "generate", "--json", *_passed_on(values)]

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="synapse-passkey-")
        # subprocess.run ends its process on any exception.
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)
        self._folder.cleanup()

    def ask(self, prompt: PasskeyPrompt) -> dict[str, Any]:
        """A prompt's part of the result.

        Raises:
            RunError: the process failed, its own line is on standard error before; or it evaluated other
                tokens.
        """
        tokens = Path(self._folder.name) / "tokens"
        tokens.write_text(" ".join(map(str, prompt.ids)), encoding="ascii")
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [*self._command, f"--tokens-file={tokens}"], stdout=subprocess.PIPE, env=_environment()
            )
        except OSError as error:
            raise RunError(f"synapse generate could not be started: {error.strerror}") from None
        wall_s = time.perf_counter() - started
        if done.returncode:
            raise RunError(
                f"synapse generate ended with {done.returncode} on the prompt of length {prompt.length} at "
                f"depth {prompt.depth:g}"
            )
        return read_run(prompt, json.loads(done.stdout), wall_s)


def _passed_on(values: flags.FlagValues) -> list[str]:
    """The flags of this command that `generate` is given as well."""
    runtime = flags.FlagValues()
    shared.define_runtime(runtime, context=None)
    names = [*(name for name in runtime if values[name].present), "model", "max_new_tokens", "progress"]
    return [f"--{name.replace('_', '-')}={values[name].value}" for name in names]


def _environment() -> dict[str, str]:
    """Ours, with this very package first."""
    paths = [str(Path(synapse_jax.__file__).resolve().parents[1]), *_given("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _given(name: str) -> list[str]:
    return [os.environ[name]] if os.environ.get(name) else []
