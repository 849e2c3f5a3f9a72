"""The state of a training run on the disk, by orbax."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from synapse_jax.errors import InputError, RunError
from synapse_jax.graph.training import TrainState
from synapse_jax.io.quoting import shown_path
from synapse_jax.spec.digest import sha256_tokens
from synapse_jax.train.plan import TrainingPlan
from synapse_jax.train.shape import DecoderShape

Identity = Mapping[str, str | int | float | bool]
"""What the weights of a run depend on, by name."""


def run_identity(
    shape: DecoderShape, plan: TrainingPlan, train: np.ndarray, held_out: np.ndarray, device: jax.Device
) -> dict[str, str | int | float | bool]:
    """Every name that decides the bits of a run.

    Args:
        shape: of the decoder.
        plan: of the training.
        train: tokens of the train split.
        held_out: tokens of the held-out split.
        device: where it runs.
    """
    parts = {"plan": dataclasses.asdict(plan), "shape": dataclasses.asdict(shape)}
    parts["corpus"] = {"train_sha256": sha256_tokens(train), "held_out_sha256": sha256_tokens(held_out)}
    parts["versions"] = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "optax")}
    parts["device"] = {"platform": device.platform, "kind": device.device_kind}
    return {f"{part}.{name}": value for part, fields in parts.items() for name, value in fields.items()}


class Checkpoints:
    """The newest two states of a run, each there whole or not at all.

    Args:
        folder: where they are kept; made if it is missing.
        identity: of the run.

    Raises:
        InputError: the folder cannot be used, or its newest checkpoint is of another run.
    """

    def __init__(self, folder: Path, identity: Identity):
        self._shown, self._identity = shown_path(folder), dict(identity)
        # A save ends before the next step: its arrays are donated there.
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False, create=True)
        try:
            self._manager = ocp.CheckpointManager(folder.resolve(), options=options)
        except OSError as error:
            raise InputError(f"{self._shown}: cannot hold checkpoints: {error.strerror}") from None
        self._check()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    @property
    def newest(self) -> int | None:
        """Steps that were done at the newest checkpoint; None where there is none."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainState) -> None:
        """Puts a state on the disk.

        Raises:
            RunError: it cannot be written.
        """
        parts = ocp.args.Composite(
            state=ocp.args.StandardSave(_plain(state)), run=ocp.args.JsonSave(self._identity)
        )
        try:
            self._manager.save(step, args=parts)
        except (OSError, ValueError) as error:
            # A full disk is a ValueError of the library under orbax.
            raise RunError(f"{self._shown}: checkpoint {step} cannot be written: {error}") from error

    def restore(self, like: TrainState) -> TrainState:
        """The newest state.

        Args:
            like: a state of the same shapes and types, on the device that is wanted.

        Raises:
            InputError: it cannot be read.
        """
        shapes = jax.tree.map(
            lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding),
            _plain(like),
        )
        found = self._read(state=ocp.args.StandardRestore(shapes)).state
        optimizer = jax.tree.unflatten(jax.tree.structure(like.optimizer), found["optimizer"])
        return TrainState(found["weights"], optimizer)

    def _check(self) -> None:
        if self.newest is None:
            return
        theirs = self._read(run=ocp.args.JsonRestore()).run
        different = sorted(
            name
            for name in theirs.keys() | self._identity.keys()
            if theirs.get(name) != self._identity.get(name)
        )
        if different:
            shown = ", ".join(
                f"{name} ({theirs.get(name)}, now {self._identity.get(name)})" for name in different
            )
            raise InputError(f"{self._shown}: is of another run: {shown}")

    def _read(self, **parts: Any) -> Any:
        try:
            return self._manager.restore(self.newest, args=ocp.args.Composite(**parts))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{self._shown}: checkpoint {self.newest} cannot be read: {error}") from None


def _plain(state: TrainState) -> dict[str, Any]:
    """The state without the optimizer's own types, which a checkpoint does not keep."""
    return {"weights": state.weights, "optimizer": jax.tree.leaves(state.optimizer)}
