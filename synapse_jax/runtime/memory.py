"""How much memory a device can still give."""

from __future__ import annotations

from pathlib import Path

import jax

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available_bytes(device: jax.Device) -> int | None:
    """Bytes that can still be allocated, or None where nothing tells.

    A CPU's are those of the system, or of the control group where that allows less.
    """
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    if device.platform != "cpu" or not _MEMINFO.exists():
        return None
    fields = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="ascii").splitlines())
    if "MemAvailable" not in fields:
        return None
    system = int(fields["MemAvailable"].split()[0]) * 1024
    group = _group_bytes()
    return system if group is None else min(system, group)


def _group_bytes() -> int | None:
    """What the control group still allows; its file cache can be given back and does not count."""
    try:
        limit = (_GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_GROUP / "memory.current").read_text(encoding="ascii"))
        stat = dict(
            line.split() for line in (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines()
        )
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    return int(limit) - used + int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))
