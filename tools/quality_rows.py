"""Rows of the long-context runs on record: what each process of `synapse` is asked."""

from __future__ import annotations

import dataclasses

from synapse_jax.io.catalog import resolve_model
from tools.parity_runs import GEMMA, SMOL

TASKS, LENGTHS, DEPTHS = ("needle", "multikey", "tracking"), (4096, 8192, 16384, 32768), "0.1,0.5,0.9"
NEEDLES = TASKS[:2]
YARN = {SMOL: "yarn:4:8192", GEMMA: "yarn:4:32768"}
"""YaRN ×4 over each model's own window."""
WINDOW = {SMOL: 8192, GEMMA: 32768}
ANSWER_TOKENS = 16


@dataclasses.dataclass(frozen=True)
class Row:
    """One process and its record."""

    name: str
    command: str
    model: str
    length: int
    """Positions that the longest sequence may have."""
    flags: tuple[str, ...]
    """Beside model, scaling and files."""
    has_control: bool = False
    """Whether llama.cpp answers too, if its weights are there."""
    needs_control: bool = False
    """Whether the row is there for the control alone."""
    is_table: bool = False
    """Whether it holds cases of the original."""

    @property
    def is_scaled(self) -> bool:
        """Whether it goes above the model's window."""
        return self.length > WINDOW[self.model]

    @property
    def control(self) -> str:
        """The control's file; above the window one that declares the scaling, which no flag could tell it."""
        return f"{self.model}{'-yarn' if self.is_scaled else ''}-f32.gguf"

    @property
    def arguments(self) -> list[str]:
        """The command line after `synapse`, in the folder of the records, but for the control."""
        declared = self.is_scaled and self.needs_control
        scaling = [f"--rope-scaling={YARN[self.model]}"] if self.is_scaled and not declared else []
        resumed = [] if self.command == "generate" else [f"--checkpoint={self.name}.checkpoint", "--resume"]
        model = f"--model={self.control if declared else resolve_model(self.model).name}"
        return [self.command, model, *self.flags, *scaling, *resumed, f"--output={self.name}.json"]


def case_flags(length: int, tasks: tuple[str, ...] = TASKS, depths: str = DEPTHS) -> tuple[str, ...]:
    """Cases of one length; by default the original's: needle and multi-key at three depths, and tracking."""
    return f"--tasks={','.join(tasks)}", f"--lengths={length}", f"--depths={depths}", "--seed=0"


def quality_row(model: str, length: int) -> Row:
    """The original's cases of one length."""
    name, has_control = f"{model}-quality-{length}", length == LENGTHS[0]
    return Row(name, "quality", model, length, case_flags(length), has_control, is_table=True)


def pages_row(select: str, budget: int) -> Row:
    """The needles at 4,096 with answers that are decoded through page activation."""
    policy = f"--attention=pages:budget={budget},window=256,select={select}"
    flags = case_flags(4096, NEEDLES)
    return Row(f"{SMOL}-pages-{select}-{budget}", "quality", SMOL, 4096, (*flags, policy))


def cache_row(policy: str) -> Row:
    """The needles at 4,096 with a policy that keeps 1,792 keys a layer at the end, for prompt and answer."""
    name = policy.partition(":")[0]
    return Row(
        f"{SMOL}-{name}-1792", "quality", SMOL, 4096, (*case_flags(4096, NEEDLES), f"--attention={policy}")
    )


def passkey_row(model: str, length: int, depths: str = DEPTHS, form: str = "plain") -> Row:
    """Pass keys of one length."""
    name = f"{model}-passkey-{length}" + ("" if form == "plain" else f"-{form}")
    flags = (f"--form={form}", f"--lengths={length}", f"--depths={depths}", "--seed=0")
    return Row(name, "passkey", model, length, flags)


def passkey_control_row(model: str, length: int) -> Row:
    """A pass key that llama.cpp is asked for too."""
    row = passkey_row(model, length, "0.5")
    return dataclasses.replace(row, name=f"{row.name}-control", has_control=True, needs_control=True)


def speed_row(model: str, length: int) -> Row:
    """A prompt of synthetic tokens that fills all positions together with its continuation."""
    flags = (f"--tokens-file=tokens-{length}.txt", f"--max-new-tokens={ANSWER_TOKENS}")
    return Row(f"{model}-speed-{length}", "generate", model, length, flags)


def control_row(model: str, length: int, flags: tuple[str, ...], what: str = "") -> Row:
    """Cases that llama.cpp answers too: many of one length, or a few of the table's."""
    return Row(f"{model}-control-{length}{what}", "quality", model, length, flags, True, True)


ROWS = (
    control_row(SMOL, 2048, (*case_flags(2048), "--cases-per-cell=6")),
    *(quality_row(model, length) for length in LENGTHS[:2] for model in (SMOL, GEMMA)),
    Row(f"{SMOL}-pages-dense", "quality", SMOL, 4096, case_flags(4096)),
    *(pages_row(select, budget) for budget in (512, 2048, 1024, 256) for select in ("bound", "random")),
    *(cache_row(policy) for policy in ("compressed:window=1024,block=4", "window:1792")),
    *(passkey_row(model, 4096) for model in (SMOL, GEMMA)),
    *(passkey_row(model, 8192, form="llama.cpp") for model in (SMOL, GEMMA)),
    *(quality_row(model, length) for length in LENGTHS[2:] for model in (GEMMA, SMOL)),
    control_row(SMOL, 8192, case_flags(8192, NEEDLES, "0.1,0.5")),
    control_row(SMOL, 8192, case_flags(8192, ("tracking",)), "-tracking"),
    control_row(GEMMA, 8192, case_flags(8192, TASKS[1:], "0.9")),
    control_row(GEMMA, 16384, case_flags(16384, NEEDLES, "0.5")),
    control_row(GEMMA, 16384, case_flags(16384, ("tracking",)), "-tracking"),
    control_row(GEMMA, 32768, case_flags(32768, depths="0.1")),
    control_row(SMOL, 16384, case_flags(16384, depths="0.5")),
    control_row(SMOL, 16384, case_flags(16384, TASKS[1:2], "0.1"), "-multikey"),
    control_row(SMOL, 32768, case_flags(32768, TASKS[1:2], "0.9")),
    speed_row(GEMMA, 40960),
    passkey_row(GEMMA, 40960, "0.5"),
    speed_row(GEMMA, 131072),
    passkey_row(GEMMA, 131072, "0.5"),
    passkey_control_row(GEMMA, 131072),
)
"""All rows, the short ones first."""
