"""Jitted entry functions for tests that go below the session."""

from __future__ import annotations

from collections.abc import Callable

import jax


class Compiled:
    """Jits a function of (params, cache, batch); the cache is donated, as in the engine."""

    @property
    def device(self) -> jax.Device:
        return jax.devices("cpu")[0]

    def __call__(self, function: Callable) -> Callable:
        return jax.jit(function, donate_argnums=1)


compiled = Compiled()
