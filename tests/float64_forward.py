"""The forward pass of a TINY model written out in float64 numpy: no cache, no blocks, no rounding to see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.tiny import Tiny, tiny_weights


def float64_logits(tiny: Tiny, ids: Sequence[int]) -> np.ndarray:
    """Logits at every position, float64 [T, V]. Letters as in STYLE; R is half the rotary size."""
    weights = {name: array.astype(np.float64) for name, array in tiny_weights(tiny).items()}
    T, H, R = len(ids), tiny.head_size, tiny.rotary // 2
    angle_T1R = np.arange(T)[:, None, None] * tiny.rope_base ** (-np.arange(R) / R)
    hidden_TT = np.triu(np.full((T, T), -np.inf), 1)

    def norm(x_TD: np.ndarray, weight: str) -> np.ndarray:
        mean = np.mean(x_TD**2, -1, keepdims=True)
        return x_TD / np.sqrt(mean + tiny.norm_epsilon) * weights[weight]

    def heads(h_TD: np.ndarray, layer: str, part: str) -> np.ndarray:
        y = h_TD @ weights[layer + part].T + weights.get(f"{layer}{part}_bias", 0.0)
        y_TNH = y.reshape(T, -1, H)
        return np.repeat(y_TNH, tiny.query_heads // y_TNH.shape[1], axis=1)

    def rotate(y_TNH: np.ndarray) -> np.ndarray:
        a, b, rest = np.split(y_TNH, (R, 2 * R), -1)
        cos, sin = np.cos(angle_T1R), np.sin(angle_T1R)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

    x_TD = weights["embed"][list(ids)]
    for i in range(tiny.layers):
        layer = f"layers.{i}."
        h_TD = norm(x_TD, layer + "attn_norm")
        q, k, v = (heads(h_TD, layer, part) for part in "qkv")
        score_NTT = np.einsum("tnh,snh->nts", rotate(q), rotate(k)) / H**0.5 + hidden_TT
        p_NTT = np.exp(score_NTT - score_NTT.max(-1, keepdims=True))
        p_NTT /= p_NTT.sum(-1, keepdims=True)
        x_TD = x_TD + np.einsum("nts,snh->tnh", p_NTT, v).reshape(T, -1) @ weights[layer + "o"].T
        h_TD = norm(x_TD, layer + "ffn_norm")
        gate_TF = h_TD @ weights[layer + "gate"].T
        m_TF = gate_TF / (1 + np.exp(-gate_TF)) * (h_TD @ weights[layer + "up"].T)
        x_TD = x_TD + m_TF @ weights[layer + "down"].T
    return norm(x_TD, "final_norm") @ weights["embed" if tiny.tied else "head"].T
