"""Runs EXP-018, compressed attention against windows of equal cache, and prints its table and verdict.

    python tools/exp018.py --output FOLDER [--only RUN …]     # trains what is not there yet; can be killed
    python tools/exp018.py --output FOLDER --table            # table and verdict of what is there
    python tools/exp018.py --output FOLDER --plot FOLDER      # losses.png and gains.png
    python tools/exp018.py --output FOLDER --large [--device gpu]   # 4,096 positions and windows of 256
    python tools/exp018.py --output FOLDER --gpt2            # a control: the same from GPT-2's weights

A run's record comes last, when its decoder is trained, judged and (first seed) probed. Its checkpoints are in
FOLDER/work and may be deleted then; the first seed's models stay in FOLDER/models.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from synapse_jax.errors import InputError, RunError  # noqa: E402
from synapse_jax.io.atomic_file import atomic_text  # noqa: E402
from synapse_jax.train.cached import cached_tokens, corpus_vocabulary  # noqa: E402
from synapse_jax.train.experiment import Experiment, Run, Texts, identity, judge, train_decoder  # noqa: E402
from synapse_jax.train.experiment_report import plot_gains, plot_losses, table, verdict  # noqa: E402
from synapse_jax.train.export import write_gguf  # noqa: E402
from synapse_jax.train.loop import Splits, Status  # noqa: E402
from synapse_jax.train.plan import TrainingPlan  # noqa: E402
from synapse_jax.train.python_sources import python_sources  # noqa: E402
from synapse_jax.train.shape import DecoderShape  # noqa: E402
from synapse_jax.train.watch import Watch  # noqa: E402

SHAPE = DecoderShape(rope_base=1e6)
"""Slow enough pairs to find a token anywhere in the context."""
RULES = dict(repeat_share=0.1, first_weights="copying", peak_rate=2e-3, embedding_rate=0.1)
"""What both plans share: weights that can copy already, and rates at which they do not forget it."""
SMALL = Experiment(TrainingPlan(tokens=1_250_000, rows=8, length=512, **RULES), SHAPE, window=64)
"""Two cores, two runs side by side: a run takes a quarter of an hour."""
LARGE = Experiment(
    TrainingPlan(tokens=60_000_000, rows=16, length=4096, **RULES), SHAPE, window=256, seeds=(0,)
)
"""One large GPU."""
WINDOWS = {512: 128, 4096: 64}
"""Held-out windows that judge a decoder, by length: as many targets at least."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--gpt2", action="store_true")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    experiment = LARGE if arguments.large else SMALL
    if arguments.gpt2:
        plan = dataclasses.replace(experiment.plan, first_weights="gpt2")
        experiment = dataclasses.replace(experiment, plan=plan)
    names = [run.name for run in experiment.runs]
    unknown = set(arguments.only or []) - set(names)
    if unknown:
        parser.error(f"--only {' '.join(sorted(unknown))}: the runs are {', '.join(names)}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    if not arguments.table and arguments.plot is None:
        runs = [run for run in experiment.runs if run.name in (arguments.only or names)]
        work(experiment, runs, arguments.output, arguments.device)
    records = read(experiment, arguments.output)
    if arguments.plot is not None:
        arguments.plot.mkdir(parents=True, exist_ok=True)
        plot_losses(experiment, records, str(arguments.plot / "losses.png"))
        plot_gains(experiment, records, str(arguments.plot / "gains.png"))
    else:
        print(table(experiment, records), *verdict(experiment, records), sep="\n\n")


def work(experiment: Experiment, runs: list[Run], folder: Path, device: str) -> None:
    """Performs the runs that have no record yet."""
    texts, missing = read_texts(), []
    for run in runs:
        path = folder / f"{run.name}.json"
        if not path.exists():
            missing.append(run)
        elif json.loads(path.read_text(encoding="utf-8"))["identity"] != identity(experiment, run, texts):
            raise InputError(f"{path}: is of another plan, shape, window or corpus")
    for name in ("work", "models"):
        (folder / name).mkdir(exist_ok=True)
    for run in missing:
        started = time.monotonic()
        training, decoder = train_decoder(
            experiment,
            run,
            texts,
            folder / "work" / run.name,
            device=device,
            watch=watch_of(experiment),
            report=Report(run, experiment.plan.step_tokens),
        )
        record = judge(experiment, run, texts, training, decoder, device=device)
        if run.seed == experiment.seeds[0]:
            write_gguf(decoder, folder / "models" / f"{run.variant.name}.gguf")
        with atomic_text(folder / f"{run.name}.json") as file:
            json.dump(record, file)
            file.write("\n")
        loss = record["held_out"]["loss"]
        say(f"{run.name}: held-out loss {loss:.4f}, {time.monotonic() - started:.0f} s")


def read_texts() -> Texts:
    """The corpus, its vocabulary and tokens; what is made takes minutes and is kept in the cache."""
    corpus = python_sources()
    vocabulary = corpus_vocabulary(corpus, log=say)
    ids = [cached_tokens(documents, vocabulary, log=say).ids for documents in (corpus.train, corpus.held_out)]
    return Texts(corpus, vocabulary, Splits(*ids))


def watch_of(experiment: Experiment) -> Watch:
    """What judges a decoder of that length."""
    return Watch(final_windows=WINDOWS[experiment.plan.length])


class Report:
    """A line every ten seconds."""

    def __init__(self, run: Run, step_tokens: int):
        self._run, self._step_tokens, self._spoken = run, step_tokens, 0.0

    def __call__(self, status: Status) -> None:
        now = time.monotonic()
        if now - self._spoken < 10 and status.step < status.steps:
            return
        self._spoken = now
        left = (status.steps - status.step) * self._step_tokens / status.tokens_per_second
        say(
            f"{self._run.name}: step {status.step}/{status.steps}, loss {status.loss:.3f}, "
            f"{status.tokens_per_second:.0f} tokens/s, {left / 60:.0f} min left"
        )


def read(experiment: Experiment, folder: Path) -> dict[str, dict]:
    """The records that are there."""
    paths = {run.name: folder / f"{run.name}.json" for run in experiment.runs}
    return {
        name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()
    }


def say(line: str) -> None:
    """Progress goes to standard error."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(f"exp018: error: {error}")
