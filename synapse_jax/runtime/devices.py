"""The XLA device that a profile asks for."""

from __future__ import annotations

import re

import jax

from synapse_jax.errors import InputError

PLATFORMS = ("cpu", "gpu", "tpu", "metal")


def find_device(name: str) -> jax.Device:
    """The device named `auto`, or `cpu`, `gpu`, `tpu` or `metal` with an optional `:index`.

    Raises:
        InputError: the name is malformed, or there is no such device; the ones there are named.
    """
    if name == "auto":
        return jax.devices()[0]
    match = re.fullmatch(r"([a-z]+)(?::(\d+))?", name)
    if match is None or match[1] not in PLATFORMS:
        raise InputError(
            f"device {name!r} is not auto or one of {', '.join(PLATFORMS)} with an optional :index"
        )
    try:
        devices = jax.devices(match[1])
    except RuntimeError:
        there = sorted({device.platform for device in jax.devices()})
        raise InputError(f"device {name!r}: there is no {match[1]} here, only {', '.join(there)}") from None
    index = int(match[2] or 0)
    if index >= len(devices):
        raise InputError(
            f"device {name!r}: there are {len(devices)} {match[1]} devices, the last is :{len(devices) - 1}"
        )
    return devices[index]
