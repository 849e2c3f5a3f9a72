"""Rows of the rotary table: float64 on the host, rounded once to float32."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from synapse_jax.spec.rope import RopeProfile

_TABLE_ROWS = 8192
"""Rows of a table that exist at a time while it is hashed."""


def rope_rows(profile: RopeProfile, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the rotation angles at some positions.

    Unscaled: cos(p · base^(−2i/d)) and the same with sin, for i = 0 … d/2 − 1 (Su et al.,
    arXiv 2104.09864, §3.4.2). Scaled: m · cos(p · θ'_i) with the frequencies of `scaled_frequencies`.
    Evaluated in float64 and rounded once to float32. A row depends on its position alone.

    Args:
        profile: the rotary profile.
        positions: int array [T]. Which of them a model may have is for its main table to say
            (`ModelIR.angle_rows`).

    Returns:
        cos [T, R] and sin [T, R], float32, R = d/2.
    """
    angle_TR = np.asarray(positions, np.float64)[:, None] * _frequencies(profile)
    if profile.type == "none":
        return np.cos(angle_TR).astype(np.float32), np.sin(angle_TR).astype(np.float32)
    m = profile.magnitude
    return (m * np.cos(angle_TR)).astype(np.float32), (m * np.sin(angle_TR)).astype(np.float32)


def turn_rows(profile: RopeProfile, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines that turn the rotated keys of a block of positions to its midpoint.

    Key j of a block has position i·b + j and goes to i·b + b // 2: by the angle (b // 2 − j)·θ'_i, whatever
    the block. Rotations add up, so the mean of keys turned so is their mean before rotation, rotated once at
    the midpoint. No magnitude: the rotated keys have it already.

    Args:
        profile: the rotary profile.
        block: b, keys a block.

    Returns:
        cos [b, R] and sin [b, R], float32.
    """
    angle_ER = (block // 2 - np.arange(block, dtype=np.float64))[:, None] * _frequencies(profile)
    return np.cos(angle_ER).astype(np.float32), np.sin(angle_ER).astype(np.float32)


def table_sha256(profile: RopeProfile, count: int) -> str:
    """Hexadecimal SHA-256 of a table of `count` positions from 0: the cosines, then the sines.

    Each is a little-endian float32 [count, R] in C order.
    """
    digest = hashlib.sha256()
    for which in (0, 1):
        for first in range(0, count, _TABLE_ROWS):
            positions = np.arange(first, min(first + _TABLE_ROWS, count))
            digest.update(rope_rows(profile, positions)[which].astype("<f4", copy=False).tobytes())
    return digest.hexdigest()


def _frequencies(profile: RopeProfile) -> np.ndarray:
    """θ_i, or θ'_i of a scaled profile, float64 [R]."""
    if profile.type != "none":
        return scaled_frequencies(profile)
    # One power at a time: numpy's vectorised power may differ from it in the last bit on some processors.
    d = profile.rotary_size
    return np.array([profile.base ** (-2 * i / d) for i in range(d // 2)])


def scaled_frequencies(profile: RopeProfile) -> np.ndarray:
    """θ'_i of a scaled profile, float64 [R].

    linear: θ/f (Chen et al., arXiv 2306.15595). llama3, longrope: θ divided by each dimension's divisor.
    yarn: (θ/f)(1 − e·r) + θ·e·r with the ramp r_i = 1 − clamp((i − low)/max(0.001, high − low), 0, 1)
    (Peng et al., arXiv 2309.00071, §3.2, as ggml evaluates it).
    """
    d, f = profile.rotary_size, profile.factor
    theta = [profile.base ** (-2 * i / d) for i in range(d // 2)]
    if profile.type == "linear":
        return np.array([t / f for t in theta])
    if profile.type in ("llama3", "longrope"):
        return np.array([t / divisor for t, divisor in zip(theta, profile.divisors, strict=True)])
    low, high = yarn_range(profile)
    mixed = []
    for i, t in enumerate(theta):
        ramp = 1 - min(max((i - low) / max(0.001, high - low), 0.0), 1.0)
        kept = profile.ext_factor * ramp
        mixed.append(t / f * (1 - kept) + t * kept)
    return np.array(mixed)


def yarn_range(profile: RopeProfile) -> tuple[float, float]:
    """(low, high), the dimensions between which YaRN passes from kept to interpolated frequencies."""

    def dimension(rotations: float) -> float:
        turns = profile.original / (2 * math.pi * rotations)
        return profile.rotary_size * math.log(turns) / (2 * math.log(profile.base))

    low, high = dimension(profile.beta_fast), dimension(profile.beta_slow)
    if profile.truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(0, low), min(profile.rotary_size - 1, high)
