"""Tasks by name."""

from __future__ import annotations

from synapse_jax.evals.tasks.needle import MULTIKEY, Needle
from synapse_jax.evals.tasks.ruler import RULER_MULTIKEY, RulerNeedle, RulerTracking
from synapse_jax.evals.tasks.task import Task
from synapse_jax.evals.tasks.tracking import Tracking

OWN: dict[str, Task] = {task.name: task for task in (Needle(), MULTIKEY, Tracking())}
RULER: dict[str, Task] = {task.name: task for task in (RulerNeedle(), RULER_MULTIKEY, RulerTracking())}
"""The same tasks in RULER's words."""
