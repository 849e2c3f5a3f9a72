"""What is looked at and kept while a decoder is trained."""

from __future__ import annotations

import dataclasses

from synapse_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Watch:
    """When a run looks at the held-out split and when it saves its state. It changes no weight."""

    looks: int = 10
    """How often the held-out split is looked at, evenly spread over the run; the last time is the end."""
    look_windows: int = 32
    """Windows of a look."""
    final_windows: int = 128
    """Windows of the last one."""
    checkpoint_s: float = 120.0
    """Seconds between checkpoints; 0 makes one after every step."""

    def __post_init__(self):
        for field in ("looks", "look_windows", "final_windows"):
            if getattr(self, field) < 1:
                raise InputError(f"training: {field} {getattr(self, field)} is below 1")
        if not self.checkpoint_s >= 0:
            raise InputError(f"training: checkpoint_s {self.checkpoint_s} is below 0")

    def is_due(self, step: int, steps: int) -> bool:
        """Whether the held-out split is looked at after so many of all steps."""
        return step * self.looks // steps > (step - 1) * self.looks // steps
