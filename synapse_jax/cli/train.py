"""`synapse train`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from synapse_jax.cli import flags as shared
from synapse_jax.cli.output import save, show
from synapse_jax.cli.progress import DOWNLOAD_BAR, Progress, say, warn
from synapse_jax.errors import InputError
from synapse_jax.io.atomic_file import atomic_text

if TYPE_CHECKING:
    from synapse_jax.train.loop import Status, Training

_SIZES = {
    "vocabulary": "Tokens.",
    "width": "Size of the residual stream.",
    "layers": "Layers.",
    "query_heads": "Query heads a layer.",
    "kv_heads": "Key and value heads a layer.",
    "head_size": "Size of a head.",
    "ffn_width": "Inner size of the feed-forward.",
    "rope_base": "θ base of the rotary frequencies.",
}
"""Flags that are fields of DecoderShape."""

_PLAN = {
    "batch": ("rows", "Windows a step."),
    "length": ("length", "Positions of a window, and the context that the model is trained for."),
    "optimizer": ("optimizer", "adamw or muon."),
    "learning_rate": ("peak_rate", "Learning rate after the warmup."),
    "warmup": ("warmup_share", "Share of the steps in which the rate rises."),
    "schedule": ("schedule", "cosine, or trapezoid: constant, then falling to the end."),
    "decay": ("decay_share", "Share of the steps in which a trapezoid falls."),
    "final_rate": ("final_share", "Share of the learning rate that is reached in the end."),
    "weight_decay": ("weight_decay", "Of matrices."),
    "clip": ("clip", "Largest norm of the gradients."),
    "embedding_rate": ("embedding_rate", "Times the learning rate: the rate of the embedding."),
    "first_weights": ("first_weights", "gpt2, or copying: with an induction head put in by hand."),
    "seed": ("seed", "Of first weights, windows and repeated spans."),
    "repeat_share": (
        "repeat_share",
        "Share of the windows that carry a span of random tokens more than once.",
    ),
    "repeat_length": ("repeat_length", "Tokens of that span."),
    "repeat_copies": ("repeat_copies", "Most copies of it in a window."),
}
"""Flags that are fields of TrainingPlan."""

_WATCH = {
    "looks": ("looks", "How often the held-out split is looked at."),
    "look_windows": ("look_windows", "Windows of a look."),
    "held_out_windows": ("final_windows", "Windows of the last one."),
    "checkpoint_every": ("checkpoint_s", "Seconds between checkpoints; 0 makes one after every step."),
}
"""Flags that are fields of Watch."""


def define(values: flags.FlagValues) -> None:
    """Flags of the command."""
    from synapse_jax.train.plan import TrainingPlan
    from synapse_jax.train.shape import DecoderShape
    from synapse_jax.train.watch import Watch

    flags.DEFINE_string(
        "output",
        None,
        "Folder for plan.json, log.jsonl, checkpoints, model.gguf, loss.png and record.json.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "tokens", None, "Targets to learn from; the last step is a whole one.", flag_values=values
    )
    flags.DEFINE_string(
        "texts",
        None,
        "A folder: its files are the corpus, each a document. By default the sources of three Python "
        "packages, fetched once.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "attention",
        "dense",
        "Attention policy to train with: dense, window:W or compressed:window=W,block=B.",
        flag_values=values,
    )
    _define_fields(values, {name: (name, text) for name, text in _SIZES.items()}, DecoderShape)
    _define_fields(values, _PLAN, TrainingPlan)
    _define_fields(values, _WATCH, Watch)
    flags.DEFINE_bool(
        "resume", False, "Go on from the newest checkpoint in --output, if there is one.", flag_values=values
    )
    flags.DEFINE_string(
        "device", "auto", "auto, or cpu, gpu, tpu or metal with an optional :index.", flag_values=values
    )
    shared.define_progress(values)
    flags.DEFINE_bool(
        "json", False, "Print the record as one JSON object instead of a table.", flag_values=values
    )


def _define_fields(values: flags.FlagValues, names: dict[str, tuple[str, str]], kind: type) -> None:
    """A flag for each field that is named, of the type of the field's default."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    make = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
    for name, (field, text) in names.items():
        make[type(defaults[field])](name, defaults[field], text, flag_values=values)


def _fields(values: flags.FlagValues, names: dict[str, tuple[str, str]]) -> dict[str, Any]:
    return {field: values[name].value for name, (field, _) in names.items()}


def run(values: flags.FlagValues) -> int:
    """Trains a decoder and writes all that it leaves."""
    for name in ("output", "tokens"):
        if values[name].value is None:
            raise InputError(f"train: --{name} is needed")
    record = _Work(values).run()
    show(values, record, _table(record))
    return 0


class _Work:
    """What is to be trained, checked before anything is read or compiled."""

    def __init__(self, values: flags.FlagValues):
        from synapse_jax.train.plan import TrainingPlan
        from synapse_jax.train.shape import DecoderShape
        from synapse_jax.train.watch import Watch

        self._values, self._say = values, say(values.progress)
        self._folder = Path(values.output)
        self._plan = TrainingPlan(tokens=values.tokens, **_fields(values, _PLAN))
        sizes: dict[str, Any] = {name: values[name].value for name in _SIZES}
        self._shape = DecoderShape(context=values.length, attention=values.attention, **sizes)
        self._watch = Watch(**_fields(values, _WATCH))
        self._plots = importlib.util.find_spec("matplotlib") is not None
        if not self._plots:
            warn("no loss.png is drawn: it needs matplotlib: pip install 'synapse-jax[plot]'")

    def run(self) -> dict[str, Any]:
        """Trains and writes; returns the record."""
        from synapse_jax.train.loop import Splits, train

        started = time.perf_counter()
        self._read_corpus()
        load_s = time.perf_counter() - started
        reported = _Reported(self._values.progress, self._plan.step_tokens)
        with contextlib.closing(reported):
            training = train(
                self._shape,
                self._plan,
                Splits(self._train.ids, self._held_out.ids),
                folder=self._folder,
                resume=self._values.resume,
                watch=self._watch,
                device=self._values.device,
                report=reported,
            )
        self._write_model(training)
        if self._plots:
            from synapse_jax.train.curves import plot_losses

            name = f"{self._shape.attention}, seed {self._plan.seed}"
            plot = self._folder / "loss.png"
            plot_losses(plot, {name: training.lines}, {name: self._plan.step_tokens})
        record = self._record(training, load_s)
        with atomic_text(self._folder / "record.json") as file:
            save(file, record)
        return record

    def _read_corpus(self) -> None:
        from synapse_jax.train.cached import cached_tokens, corpus_vocabulary
        from synapse_jax.train.corpus import documents_from_folder
        from synapse_jax.train.python_sources import python_sources

        texts = self._values.texts
        self._corpus = (
            python_sources(log=self._say, bar=DOWNLOAD_BAR[self._values.progress])
            if texts is None
            else documents_from_folder(texts)
        )
        self._vocabulary = corpus_vocabulary(self._corpus, self._shape.vocabulary, log=self._say)
        self._train, self._held_out = (
            cached_tokens(documents, self._vocabulary, log=self._say)
            for documents in (self._corpus.train, self._corpus.held_out)
        )
        self._say(
            f"{self._corpus.name}: {len(self._train.ids)} tokens to learn from, "
            f"{len(self._held_out.ids)} held out; {self._shape.parameters} parameters, "
            f"{self._plan.steps} steps of {self._plan.step_tokens} tokens; compiling"
        )

    def _write_model(self, training: Training) -> None:
        from synapse_jax.train.export import write_gguf
        from synapse_jax.train.trained import TRAINING_KEY, TrainedDecoder, corpus_provenance

        facts: dict[str, str | int | float] = {
            "tokens": self._plan.steps * self._plan.step_tokens,
            "seed": self._plan.seed,
            "plan_sha256": self._plan.digest,
            "held_out_loss": training.held_out_loss,
        }
        provenance = corpus_provenance(self._corpus, self._vocabulary)
        provenance |= {TRAINING_KEY + key: value for key, value in facts.items()}
        decoder = TrainedDecoder(training.ir.spec, training.weights(), self._vocabulary, provenance)
        write_gguf(decoder, self._folder / "model.gguf")

    def _record(self, training: Training, load_s: float) -> dict[str, Any]:
        from synapse_jax.evals import record as records
        from synapse_jax.graph.fingerprint import profile_identity
        from synapse_jax.io.model_file import load
        from synapse_jax.runtime.devices import find_device
        from synapse_jax.train.summary import training_summary

        tokens = (self._plan.steps - training.resumed_steps) * self._plan.step_tokens
        with load(str(self._folder / "model.gguf"), digest=True) as model:
            record = records.build_record(
                "train",
                arguments=shared.given_arguments(self._values),
                result={
                    **training_summary(self._shape, self._plan, training),
                    "corpus": {
                        "name": self._corpus.name,
                        "sha256": self._corpus.sha256,
                        "train_tokens": len(self._train.ids),
                        "held_out_tokens": len(self._held_out.ids),
                        "vocabulary_sha256": self._vocabulary.sha256,
                    },
                },
                model=model,
                profile=training.ir.profile,
                device=find_device(self._values.device),
                ids=self._train.ids.tolist(),
                timings=records.Timings(load_s, training.compile_s, training.seconds, tokens),
            )
        record["fingerprints"] = {"profile": profile_identity(training.ir).digest, "entries": []}
        return record


class _Reported:
    """Progress of a run in tokens, with its loss and its speed."""

    def __init__(self, mode: str, step_tokens: int):
        self._step_tokens = step_tokens
        self._detail = ""
        self._progress = Progress(mode, "train", "tokens", lambda: self._detail)

    def __call__(self, status: Status) -> None:
        self._detail = (
            f"step {status.step} of {status.steps}, loss {status.loss:.3f}, "
            f"{status.tokens_per_second:.0f} tokens/s"
        )
        # Counted from where this process began: the time that is left follows from its own speed.
        done, total = status.step - status.resumed_steps, status.steps - status.resumed_steps
        self._progress(done * self._step_tokens, total * self._step_tokens)

    def close(self) -> None:
        """Ends a bar that did not reach its end."""
        self._progress.close()


def _table(record: dict[str, Any]) -> list[tuple[str, str]]:
    result = record["result"]
    speed = record["timings"]["tokens_per_second"]
    error = "" if result["held_out_error"] is None else f" ± {result['held_out_error']:.4f}"
    return [
        (
            "held-out loss",
            f"{result['held_out_loss']:.4f}{error} nats a token "
            f"({result['held_out_windows']} windows of {result['plan']['length']})",
        ),
        (
            "training loss",
            f"{result['train_loss']:.4f} over the last {result['train_loss_steps']} steps",
        ),
        ("tokens", f"{result['tokens']} in {result['steps']} steps"),
        ("speed", "none" if speed is None else f"{speed:.0f} tokens/s"),
        ("attention", result["shape"]["attention"]),
        ("model", record["model"]["path"]),
        ("weights", f"{result['parameters']} parameters, sha256 {result['weights_sha256']}"),
        ("plan", result["plan_sha256"]),
    ]
