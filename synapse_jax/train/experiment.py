"""EXP-018: does compressing old keys cost less than forgetting them? Small decoders of equal cache."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.evals.probe import run_trials
from synapse_jax.evals.probe_plan import ProbePlan, draw_plants, even_depths, plantable_ids
from synapse_jax.evals.probe_result import summarize
from synapse_jax.evals.record import tokens_summary, versions_summary
from synapse_jax.graph.fingerprint import cpu_features, thread_count
from synapse_jax.runtime.session import Session
from synapse_jax.spec.runtime import RuntimeProfile
from synapse_jax.train.corpus import Corpus
from synapse_jax.train.log import StepLine
from synapse_jax.train.loop import Splits, Status, Training, train
from synapse_jax.train.plan import TrainingPlan
from synapse_jax.train.shape import DecoderShape
from synapse_jax.train.summary import training_summary
from synapse_jax.train.trained import TrainedDecoder, corpus_provenance
from synapse_jax.train.vocabulary import PairVocabulary
from synapse_jax.train.watch import Watch

SCHEMA = "synapse.experiment/1"
PROBE_BLOCKS = 16
PROBE_SEED = 18
LOSS_POINTS = 64
"""Points of the loss curve in a record."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """One form of attention in the experiment."""

    name: str
    """As tables and files call it."""
    attention: str
    """Policy that it is trained with."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One decoder to be trained and looked at."""

    variant: Variant
    seed: int

    @property
    def name(self) -> str:
        """Name of its record."""
        return f"{self.variant.name}-seed{self.seed}"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What is trained. Window and length belong together: the length is at least eight windows.

    Raises:
        InputError: a length below eight windows, a block that does not divide what is outside the window, or
            no seed.
    """

    plan: TrainingPlan
    """Of all runs; its seed is replaced by theirs."""
    shape: DecoderShape = dataclasses.field(default_factory=DecoderShape)
    """Of all decoders; context and attention are replaced."""
    window: int = 64
    """W, exact keys."""
    blocks: tuple[int, ...] = (4, 8)
    """Sizes of pooled blocks."""
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self):
        if self.plan.length < 8 * self.window:
            raise InputError(
                f"experiment: length {self.plan.length} is below eight windows of {self.window}: what lies "
                "outside the window would hardly count"
            )
        for block in self.blocks:
            if block < 1 or (self.plan.length - self.window) % block:
                raise InputError(
                    f"experiment: block {block} does not divide the {self.plan.length - self.window} "
                    f"positions outside the window"
                )
        if not self.seeds:
            raise InputError("experiment: no seed")

    def equal_window(self, block: int) -> int:
        """A plain window with the cache of a compressed one: W + (n − W) / b positions."""
        return self.window + (self.plan.length - self.window) // block

    def plan_of(self, run: Run) -> TrainingPlan:
        """The plan of a run: that of all, with its seed."""
        return dataclasses.replace(self.plan, seed=run.seed)

    def shape_of(self, run: Run) -> DecoderShape:
        """The shape of a run's decoder: that of all, with its attention and the plan's length."""
        return dataclasses.replace(self.shape, context=self.plan.length, attention=run.variant.attention)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Those of all seeds, and last the plain window, which is trained once."""
        compressed = [Variant(f"b{b}", f"compressed:window={self.window},block={b}") for b in self.blocks]
        windows = [Variant(f"w{w}", f"window:{w}") for w in map(self.equal_window, self.blocks)]
        return (
            Variant("full", "dense"),
            *compressed,
            *windows,
            Variant(f"w{self.window}", f"window:{self.window}"),
        )

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, seed by seed."""
        repeated, once = self.variants[:-1], self.variants[-1]
        return tuple(
            Run(variant, seed)
            for seed in self.seeds
            for variant in (*repeated, *([once] if seed == self.seeds[0] else []))
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Texts:
    """What the decoders learn from and are judged by."""

    corpus: Corpus
    vocabulary: PairVocabulary
    splits: Splits


def train_decoder(
    experiment: Experiment,
    run: Run,
    texts: Texts,
    folder: Path,
    *,
    device: str = "auto",
    watch: Watch | None = None,
    report: Callable[[Status], None] = lambda status: None,
) -> tuple[Training, TrainedDecoder]:
    """Trains the decoder of a run, or goes on training it.

    Args:
        experiment: what it is part of.
        run: which decoder.
        texts: tokens of both splits.
        folder: where the training keeps its checkpoints.
        device: as in `RuntimeProfile`.
        watch: see `train.loop.train`.
        report: called after every training step.
    """
    plan, shape = experiment.plan_of(run), experiment.shape_of(run)
    training = train(
        shape, plan, texts.splits, folder=folder, resume=True, watch=watch, device=device, report=report
    )
    provenance = corpus_provenance(texts.corpus, texts.vocabulary)
    provenance |= {"synapse.training.plan_sha256": plan.digest, "synapse.training.seed": plan.seed}
    return training, TrainedDecoder(training.ir.spec, training.weights(), texts.vocabulary, provenance)


def judge(
    experiment: Experiment,
    run: Run,
    texts: Texts,
    training: Training,
    decoder: TrainedDecoder,
    *,
    device: str = "auto",
) -> dict[str, Any]:
    """Measures loss, cache and, for the first seed, the probe of a trained decoder.

    Args:
        experiment: what it is part of.
        run: which decoder.
        texts: tokens of both splits.
        training: how it was trained.
        decoder: what came of it.
        device: as in `RuntimeProfile`.

    Returns:
        The run's record, JSON values.
    """
    plan, shape = experiment.plan_of(run), experiment.shape_of(run)
    started = time.perf_counter()
    probe = _probe(decoder, texts, device) if run.seed == experiment.seeds[0] else None
    return {
        "schema": SCHEMA,
        "name": run.name,
        "variant": dataclasses.asdict(run.variant),
        "seed": run.seed,
        "identity": identity(experiment, run, texts),
        "training": training_summary(shape, plan, training),
        "losses": _losses(training),
        "corpus": {
            "sha256": texts.corpus.sha256,
            "vocabulary_sha256": texts.vocabulary.sha256,
            "train": tokens_summary(texts.splits.train.tolist(), None),
            "held_out": tokens_summary(texts.splits.held_out.tolist(), None),
        },
        "held_out": _held_out(training.held_out_nll, experiment.window),
        "cache": _cache(decoder, plan.length, device),
        "probe": probe,
        "probe_s": None if probe is None else time.perf_counter() - started,
        "versions": versions_summary(),
        "machine": {"cpu_features": cpu_features(), "threads": thread_count()},
    }


def identity(experiment: Experiment, run: Run, texts: Texts) -> dict[str, Any]:
    """What a run's record must say for it to be of this experiment."""
    return {
        "plan_sha256": experiment.plan_of(run).digest,
        "window": experiment.window,
        "shape": dataclasses.asdict(experiment.shape_of(run)),
        "corpus_sha256": texts.corpus.sha256,
        "vocabulary_sha256": texts.vocabulary.sha256,
    }


def _losses(training: Training) -> list[list[float]]:
    """[step, mean loss of the steps up to it since the last one], at most 64 of them."""
    steps = [line for line in training.lines if isinstance(line, StepLine)]
    parts = np.array_split(np.arange(len(steps)), min(LOSS_POINTS, len(steps)))
    return [[steps[part[-1]].step, statistics.fmean(steps[i].loss for i in part)] for part in parts]


def _held_out(nll: np.ndarray, window: int) -> dict[str, Any]:
    """Mean NLL of all held-out targets, of those with more than a window before them, and by position."""
    by_position = nll.mean(axis=0, dtype=np.float64)
    return {
        "windows": len(nll),
        "loss": float(by_position.mean()),
        "loss_beyond_window": float(by_position[window:].mean()),
        "by_position": [float(part.mean()) for part in np.array_split(by_position, 16)],
    }


def _cache(decoder: TrainedDecoder, length: int, device: str) -> dict[str, int]:
    """Bytes of a session's cache that holds `length` positions in 16 bit."""
    # Pages as small as the windows: what is allocated is then close to what is live.
    profile = RuntimeProfile(kv_dtype="f16", page_size=64, device=device)
    session = Session(decoder, profile, ready=[], positions=length)
    session.step(np.zeros(length, np.int32))
    cache = session.cache
    return {"positions": length, "live_bytes": cache.live_bytes, "allocated_bytes": cache.allocated_bytes}


def _probe(decoder: TrainedDecoder, texts: Texts, device: str) -> dict[str, Any]:
    """The copy probe on held-out text."""
    length = decoder.spec.trained_context
    plan = ProbePlan(length, PROBE_BLOCKS, even_depths(length), PROBE_SEED)
    # Training never saw this split; the windows that judge the loss are of it too.
    blocks = plan.cut(texts.splits.held_out.astype(np.int32))
    plants = draw_plants(plan, plantable_ids(decoder.vocabulary.tokenizer.vocabulary))
    session = Session(decoder, RuntimeProfile(device=device), ready=[])
    trials = list(run_trials(session, blocks, plan, plants))
    return summarize(plan, trials, decoder.spec, session.profile.policy)
