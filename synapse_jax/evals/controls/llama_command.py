"""llama.cpp's own programs, by their command line."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from synapse_jax.errors import InputError, RunError
from synapse_jax.evals.controls.control import ControlScores, ControlText, Evaluated, Evaluating
from synapse_jax.evals.score import Protocol
from synapse_jax.io.quoting import quote

POLL_S = 0.05
MAGIC = b"_logits_"
HEADER_BYTES = len(MAGIC) + 3 * 4
_RUNNING = re.compile(rb"\[(\d+)\]([^,\s]+),")
"""A running perplexity as llama-perplexity prints it."""
_PROMPT_TOKEN = re.compile(rb"^(?:[\d.]+ I )? *(\d+) -> '", re.MULTILINE)
"""A prompt's token as `--verbose-prompt` lists it."""


class LlamaCommand:
    """llama-perplexity or llama-completion, started once for every call.

    The programs take text, so the tokens are decoded and the engine encodes them again: its own tokens say
    whether it saw the same ones.

    Args:
        command: the program with all that decides its figures, for parity
            `llama-perplexity -m FILE-f32.gguf -ctk f32 -ctv f32 -fa off`.
        decode: token IDs → the bytes that they stand for.
        bos_id: token that the engine puts before a text by itself, or None.

    Raises:
        InputError: the program cannot be started.
    """

    def __init__(self, command: str, decode: Callable[[np.ndarray], bytes], bos_id: int | None):
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"control {quote(command)} is no command line: {error}") from None
        self._decode, self._bos_id = decode, bos_id
        if not self._words:
            raise InputError("the control's command line is empty")
        said = _output([self._words[0], "--version"])
        found = re.search(rb"version: *(\S.*)", said)
        version = found[1].decode(errors="replace").strip() if found else "of unknown version"
        self._name = f"{Path(self._words[0]).name} {version}"

    @property
    def name(self) -> str:
        """Engine and version."""
        return self._name

    def score(self, ids: np.ndarray, protocol: Protocol) -> Iterator[ControlScores]:
        """See `Control`; for llama-perplexity.

        Its running figures are those that it prints. Single ones come from the file of log-probabilities
        that it writes for later comparisons: in 65,536 steps over at most 16 nats below the likeliest
        token, so within 0.00013 and never more than 16 above the smallest. The file takes 2 · V bytes a
        scored position, in the folder for temporary files.

        Raises:
            InputError: the protocol is not llama-perplexity's own, or it needs more tokens.
            RunError: the program fails, or does not score what it was asked to.
        """
        chunks, n_ctx = protocol.cut(ids), protocol.n_ctx
        if protocol.score_last is not None:
            raise InputError(f"{self.name} scores the second half of a chunk, never the {protocol.name}")
        if len(ids) < 2 * n_ctx:
            raise InputError(f"{self.name} takes at least 2 · {n_ctx} tokens, {len(ids)} were given")
        with tempfile.TemporaryDirectory() as folder:
            text, saved = Path(folder, "text"), Path(folder, "log-probabilities")
            # The program drops one trailing newline.
            text.write_bytes(self._text(ids) + b"\n")
            given = ["-f", text, "-c", n_ctx, "-b", n_ctx, "--chunks", len(chunks)]
            log = _SavedLogProbabilities(saved, chunks.shape, protocol.start, self._bos_id)
            with self._started([*given, "--kl-divergence-base", saved], Path(folder)) as running:
                for index in range(len(chunks)):
                    while running.is_alive() and not (log.has(index) and index + 1 in running.figures()):
                        time.sleep(POLL_S)
                    if not log.has(index):
                        raise RunError(
                            f"{self.name} scored {index} of {len(chunks)} chunks: {running.said()}"
                        )
                    # It can end before it has printed everything.
                    yield log.read(index, running.figures().get(index + 1))

    def close(self) -> None:
        """Programs end with their calls."""

    def generate(
        self,
        ids: np.ndarray,
        count: int,
        *,
        stop_ids: Collection[int] = (),
        beside: Sequence[Collection[int]] | None = None,
        progress: Evaluating | None = None,
    ) -> ControlText:
        """See `Control`; for llama-completion, which gives text and no tokens, and stops where it will."""
        with tempfile.TemporaryDirectory() as folder:
            text, log = Path(folder, "text"), Path(folder, "log")
            text.write_bytes(self._text(ids) + b"\n")
            given = ["-f", text, "-n", count, "--temp", 0, "--top-k", 1, "-no-cnv", "--no-display-prompt"]
            given += ["--no-warmup", "--simple-io", "--verbose-prompt", "--log-file", log]
            words = [*self._words, *map(str, given)]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
            if done.returncode:
                raise RunError(f"{self.name} ended with {done.returncode}: {_last_line(done.stderr)}")
            listed = [int(token) for token in _PROMPT_TOKEN.findall(log.read_bytes())]
            # It prints two line ends of its own after the text, unless it ends before it has printed all.
            if not done.stdout.endswith(b"\n\n"):
                raise RunError(f"{self.name} printed only {done.stdout!r}")
            return ControlText(None, done.stdout.removesuffix(b"\n\n"), Evaluated.of(listed))

    def _text(self, ids: np.ndarray) -> bytes:
        has_bos = self._bos_id is not None and len(ids) and ids[0] == self._bos_id
        return self._decode(ids[1:] if has_bos else ids)

    @contextlib.contextmanager
    def _started(self, given: list[object], folder: Path) -> Iterator[_Running]:
        with Path(folder, "stdout").open("wb") as out, Path(folder, "stderr").open("wb") as errors:
            words = [*self._words, *map(str, given)]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        try:
            yield _Running(process, Path(folder, "stdout"), Path(folder, "stderr"))
        finally:
            process.kill()
            process.wait()


@dataclasses.dataclass(frozen=True)
class _Running:
    """A program at work, and what it has said so far."""

    process: subprocess.Popen
    stdout: Path
    stderr: Path

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def figures(self) -> dict[int, float]:
        """Running perplexities by the number of the chunk, from 1."""
        return {int(number): float(value) for number, value in _RUNNING.findall(self.stdout.read_bytes())}

    def said(self) -> str:
        """Exit status and last words."""
        return f"it ended with {self.process.wait()}: {_last_line(self.stderr.read_bytes())}"


class _SavedLogProbabilities:
    """What `--kl-divergence-base` writes (llama.cpp, tools/perplexity).

    `_logits_`, then int32 n_ctx, V and chunks, the tokens as the engine encoded them, and for each scored
    position two float32 (step, smallest log-probability), two unused float32 halves and V uint16, V even.

    Args:
        path: the file.
        shape: (chunks, n_ctx) that were asked for.
        start: index in a chunk of the first scored target.
        bos_id: what replaces the first token of each chunk, or None.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], start: int, bos_id: int | None):
        self._path, self._shape, self._start, self._bos_id = path, shape, start, bos_id

    def has(self, index: int) -> bool:
        """Whether a whole chunk is in the file."""
        try:
            return self._path.stat().st_size >= self._offset(index + 1)
        except (OSError, RunError):
            return False

    def read(self, index: int, running: float | None) -> ControlScores:
        """One chunk's scores, once the file `has` it."""
        ids = self._tokens()[index].copy()
        if self._bos_id is not None:
            ids[0] = self._bos_id
        targets = ids[self._start :]
        rows = np.memmap(self._path, np.uint16, "r", self._offset(index), (len(targets), self._width()))
        step_and_smallest = np.ascontiguousarray(rows[:, :4]).view(np.float32).astype(np.float64)
        step, smallest = step_and_smallest[:, 0], step_and_smallest[:, 1]
        nll = -(step * rows[np.arange(len(targets)), 4 + targets] + smallest)
        greedy = np.array([row[4:].argmax() for row in rows], np.int32)
        return ControlScores(nll, greedy, Evaluated.of(ids), int(self._header()[1]), running)

    def _header(self) -> np.ndarray:
        with self._path.open("rb") as file:
            head = file.read(HEADER_BYTES)
        numbers = np.frombuffer(head.ljust(HEADER_BYTES, b"\0")[len(MAGIC) :], np.int32)
        if not head.startswith(MAGIC) or (numbers[2], numbers[0]) != self._shape:
            raise RunError(f"the program saved no log-probabilities of {self._shape} chunks and tokens")
        return numbers

    def _tokens(self) -> np.ndarray:
        self._header()
        return np.fromfile(
            self._path, np.int32, self._shape[0] * self._shape[1], offset=HEADER_BYTES
        ).reshape(self._shape)

    def _width(self) -> int:
        """uint16 a position."""
        return 2 * ((int(self._header()[1]) + 1) // 2) + 4

    def _offset(self, index: int) -> int:
        rows = index * (self._shape[1] - self._start)
        return HEADER_BYTES + 4 * self._shape[0] * self._shape[1] + 2 * rows * self._width()


def _output(words: list[str]) -> bytes:
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not end"
        raise InputError(f"control {quote(words[0])} cannot be started: {reason}") from None
    return done.stdout + done.stderr


def _last_line(said: bytes) -> str:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
