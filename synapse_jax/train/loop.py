"""Training a decoder: steps, looks at the held-out split, checkpoints."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from synapse_jax.errors import InputError, RunError
from synapse_jax.graph.training import TrainState
from synapse_jax.ir.nodes import ModelIR
from synapse_jax.runtime.devices import find_device
from synapse_jax.train.batches import Batches, held_out_windows
from synapse_jax.train.checkpoints import run_identity
from synapse_jax.train.decoder import Decoder
from synapse_jax.train.first_weights import check_first_weights
from synapse_jax.train.log import HeldOutLine, Line, StepLine
from synapse_jax.train.plan import TrainingPlan
from synapse_jax.train.programs import Programs, compile_programs
from synapse_jax.train.run_folder import Kept, open_run
from synapse_jax.train.shape import DecoderShape
from synapse_jax.train.watch import Watch


@dataclasses.dataclass(frozen=True)
class Splits:
    """The tokens of a corpus."""

    train: np.ndarray
    """uint16 [T], what is learned from."""
    held_out: np.ndarray
    """uint16, what is not."""


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """A run that came to its end."""

    decoder: Decoder
    """The trained weights."""
    ir: ModelIR
    """What computed the loss."""
    lines: tuple[Line, ...]
    """The log of the whole run."""
    held_out_nll: np.ndarray
    """float32 [windows, S], NLL of every target of the last look, in nats."""
    resumed_steps: int
    """Steps that an earlier process had done."""
    compile_s: float
    """Compiling in this process; next to nothing where an equal program was there."""
    seconds: float
    """Steps of this process, looks and checkpoints left out."""

    @property
    def held_out_loss(self) -> float:
        """Mean NLL of all targets of the last look, in nats."""
        return mean_nll(self.held_out_nll)

    def weights(self) -> dict[str, np.ndarray]:
        """float32 by canonical name, for a `TrainedDecoder`."""
        return {name: np.asarray(array) for name, array in self.decoder.weights().items()}


@dataclasses.dataclass(frozen=True)
class Status:
    """How far a run is."""

    step: int
    """Steps done."""
    steps: int
    """Of so many."""
    resumed_steps: int
    """Of which an earlier process did so many."""
    loss: float
    """Of the last step, in nats."""
    tokens_per_second: float
    """Of the last step."""


def train(
    shape: DecoderShape,
    plan: TrainingPlan,
    splits: Splits,
    *,
    folder: Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    device: str = "auto",
    report: Callable[[Status], None] = lambda status: None,
) -> Training:
    """Trains a decoder.

    Killed at any moment and resumed, it ends with the same bits: a step's windows follow from its number, and
    a checkpoint holds all else.

    Args:
        shape: of the decoder; its context is the plan's length or more.
        plan: how.
        splits: tokens.
        folder: where log and checkpoints are kept; None keeps neither.
        resume: whether there may be some already; it then goes on from the newest.
        watch: what is looked at and kept.
        device: as in `RuntimeProfile`.
        report: called after every step.

    Raises:
        InputError: the plan does not fit the shape or the tokens; the folder holds a run without `resume`, or
            another run.
        RunError: the loss is no number any more, or the disk is full.
    """
    return _Run(shape, plan, splits, watch or Watch(), device, report).train(folder, resume)


class _Run:
    """One run: what it needs, checked before anything is compiled."""

    def __init__(
        self,
        shape: DecoderShape,
        plan: TrainingPlan,
        splits: Splits,
        watch: Watch,
        device: str,
        report: Callable[[Status], None],
    ):
        if shape.context < plan.length:
            raise InputError(
                f"training: length {plan.length} is above the context {shape.context} of the model"
            )
        check_first_weights(shape.spec(), plan.first_weights)
        for name, ids in (("train", splits.train), ("held-out", splits.held_out)):
            if len(ids) and int(ids.max()) >= shape.vocabulary:
                raise InputError(
                    f"training: the {name} split holds token {ids.max()}, the vocabulary ends at "
                    f"{shape.vocabulary - 1}"
                )
        self._plan, self._watch, self._report = plan, watch, report
        self._batches = Batches(splits.train, shape.vocabulary - 1, plan)
        self._windows, self._last_windows = (
            held_out_windows(splits.held_out, plan.length, count)
            for count in (watch.look_windows, watch.final_windows)
        )
        self._shape, self._device = shape, find_device(device)
        self._identity = run_identity(shape, plan, splits.train, splits.held_out, self._device)

    def train(self, folder: Path | None, resume: bool) -> Training:
        keeping = open_run(folder, self._identity, resume=resume, every_s=self._watch.checkpoint_s)
        with jax.default_device(self._device), keeping as kept:
            started = time.perf_counter()
            programs = compile_programs(self._shape, self._plan, self._device)
            compile_s = time.perf_counter() - started
            decoder = Decoder(programs.ir.spec, self._plan.seed, self._plan.first_weights)
            # Copies: a step gives its argument away, the decoder keeps its own.
            weights = jax.tree.map(jnp.copy, decoder.weights())
            state, resumed = kept.begin(TrainState(weights, programs.optimizer.init(weights)))
            before = kept.seconds
            for number in range(resumed, self._plan.steps):
                state = self._step(programs, state, number, kept)
                self._report(self._status(kept, resumed))
                self._after(programs, state, number + 1, kept)
            seconds = kept.seconds - before
            nll = self._nll(programs, state, self._last_windows)
            if not isinstance(kept.lines[-1], HeldOutLine):  # a run that was resumed after its end has it
                kept.add(_look(self._plan.steps, nll))
            kept.save(self._plan.steps, state, is_last=True)
            decoder.replace(state.weights)
        return Training(decoder, programs.ir, tuple(kept.lines), nll, resumed, compile_s, seconds)

    def _step(self, programs: Programs, state: TrainState, number: int, kept: Kept) -> TrainState:
        """Step `number`, counted from 0, and its line."""
        started, done = time.perf_counter(), number + 1
        state, loss = programs.step(state, self._batches.windows(number))
        value = float(loss)
        if not math.isfinite(value):
            raise RunError(f"training: the loss of step {done} is {value}: the training has diverged")
        seconds = kept.seconds + time.perf_counter() - started
        kept.add(StepLine(done, value, self._plan.rate(number), seconds))
        return state

    def _after(self, programs: Programs, state: TrainState, done: int, kept: Kept) -> None:
        """What comes after a step that is not the last: a look and a checkpoint, each where it is due."""
        steps = self._plan.steps
        if done < steps:
            if self._watch.is_due(done, steps):
                kept.add(_look(done, self._nll(programs, state, self._windows)))
            kept.save(done, state)

    def _status(self, kept: Kept, resumed: int) -> Status:
        """Of a run whose last line is of a step."""
        seconds = [line.seconds for line in kept.lines[-3:] if isinstance(line, StepLine)]
        took = seconds[-1] - seconds[-2] if len(seconds) > 1 else seconds[-1]
        last = kept.lines[-1]
        assert isinstance(last, StepLine)
        return Status(last.step, self._plan.steps, resumed, last.loss, self._plan.step_tokens / took)

    def _nll(self, programs: Programs, state: TrainState, windows: np.ndarray) -> np.ndarray:
        """NLL of every target, float32 [windows, S]."""
        rows = self._plan.rows
        # The last call is filled up: every call has the same shape.
        padded = np.concatenate([windows, np.repeat(windows[-1:], -len(windows) % rows, axis=0)])
        nll = [
            programs.nll(state.weights, padded[start : start + rows]) for start in range(0, len(padded), rows)
        ]
        return np.concatenate(nll)[: len(windows)]


def _look(step: int, nll: np.ndarray) -> HeldOutLine:
    loss = mean_nll(nll)
    if not math.isfinite(loss):
        raise RunError(f"training: the held-out loss after step {step} is {loss}: the training has diverged")
    return HeldOutLine(step, loss, len(nll))


def mean_nll(nll: np.ndarray) -> float:
    """Mean over all targets, summed in float64."""
    return float(nll.mean(dtype=np.float64))
