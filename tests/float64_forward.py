"""The forward pass written out in numpy: no cache, no blocks, and in float64 no rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from synapse_jax.spec.model import ModelSpec
from tests.tiny import Tiny, tiny_weights


def float64_logits(tiny: Tiny, ids: Sequence[int], **policy: int) -> np.ndarray:
    """Logits at every position, float64 [T, V]."""
    weights = {name: array.astype(np.float64) for name, array in tiny_weights(tiny).items()}
    return forward(tiny, weights, ids, **policy)


def float64_nll(spec: ModelSpec, weights: Mapping[str, np.ndarray], ids: Sequence[int]) -> np.ndarray:
    """NLL of each token but the first, float64 [T - 1], of a llama without RoPE scaling."""
    sizes = Tiny(
        layers=spec.layers,
        width=spec.width,
        query_heads=spec.query_heads,
        kv_heads=spec.kv_heads,
        head_size=spec.head_size,
        ffn_width=spec.ffn_width,
        vocab=spec.vocab_size,
        context=spec.trained_context,
        rope_base=spec.rope_base,
        norm_epsilon=spec.norm_epsilon,
        tied="head" not in weights,
    )
    logits = forward(sizes, {name: w.astype(np.float64) for name, w in weights.items()}, ids)
    logits -= logits.max(-1, keepdims=True)
    return np.log(np.exp(logits).sum(-1))[:-1] - logits[np.arange(len(ids) - 1), list(ids[1:])]


def forward(
    tiny: Tiny, weights: dict[str, np.ndarray], ids: Sequence[int], *, window: int = 0, block: int = 0
) -> np.ndarray:
    """Logits at every position in the weights' own type, [T, V]. Letters as in STYLE.

    `window` is a policy's, on layers that see all keys by the model's own masks; `block` keys that have left
    it are pooled into one, before rotation, and rotated at the midpoint (REQUIREMENTS, B).
    """
    T, H = len(ids), tiny.head_size
    is_gemma = tiny.arch == "gemma3"
    # Rows are queries at p1, columns keys at p0.
    p1_T1, p0_1T = np.arange(T)[:, None], np.arange(T)[None, :]
    scale = tiny.query_scale or H**-0.5

    def norm(x: np.ndarray, weight: str) -> np.ndarray:
        mean = np.mean(x**2, -1, keepdims=True)
        return x / np.sqrt(mean + tiny.norm_epsilon) * weights[weight]

    def heads(h_TD: np.ndarray, layer: str, part: str) -> np.ndarray:
        y_TO = h_TD @ weights[layer + part].T
        if tiny.biased:
            y_TO = y_TO + weights[f"{layer}{part}_bias"]
        y_TNH = y_TO.reshape(T, -1, H)
        if part != "v" and tiny.has_qk_norm and tiny.qk_norm:
            y_TNH = norm(y_TNH, f"{layer}{part}_norm")
        return np.repeat(y_TNH, tiny.query_heads // y_TNH.shape[1], axis=1)

    def post_norm(x_TD: np.ndarray, weight: str) -> np.ndarray:
        return norm(x_TD, weight) if is_gemma and tiny.post_norms else x_TD

    def gate(g_TF: np.ndarray) -> np.ndarray:
        if is_gemma and tiny.gelu:
            return 0.5 * g_TF * (1 + np.tanh((2 / np.pi) ** 0.5 * (g_TF + 0.044715 * g_TF**3)))
        return g_TF / (1 + np.exp(-g_TF))

    x_TD = weights["embed"][list(ids)]
    if is_gemma and tiny.embed_scaled:
        x_TD = x_TD * tiny.D**0.5
    for i, slides in enumerate(tiny.window_layers):
        layer = f"layers.{i}."
        h_TD = norm(x_TD, layer + "attn_norm")
        q, k, v = (heads(h_TD, layer, part) for part in "qkv")
        cos, sin = (turn.astype(x_TD.dtype) for turn in _cos_and_sin(tiny, T, slides and is_gemma))
        k_rotated = _rotate(k, cos, sin)
        reach = tiny.window if slides else window or T
        hidden_TT = (p0_1T > p1_T1) | (p1_T1 - p0_1T >= reach)
        if block and not slides:
            last = np.arange(block, T + 1, block)  # one past the last key of each whole block
            middle = last - block + block // 2
            k_rotated = np.concatenate([_rotate(_pooled(k, block), cos[middle], sin[middle]), k_rotated])
            v = np.concatenate([_pooled(v, block), v])
            hidden_TT = np.concatenate([last[None, :] > p1_T1 - reach + 1, hidden_TT], axis=1)
        score_NTT = np.einsum("tnh,snh->nts", _rotate(q, cos, sin), k_rotated) * scale
        score_NTT = np.where(hidden_TT, -np.inf, score_NTT)
        p_NTT = np.exp(score_NTT - score_NTT.max(-1, keepdims=True))
        p_NTT /= p_NTT.sum(-1, keepdims=True)
        a_TD = np.einsum("nts,snh->tnh", p_NTT, v).reshape(T, -1) @ weights[layer + "o"].T
        x_TD = x_TD + post_norm(a_TD, layer + "attn_post_norm")
        h_TD = norm(x_TD, layer + "ffn_norm")
        m_TF = gate(h_TD @ weights[layer + "gate"].T) * (h_TD @ weights[layer + "up"].T)
        x_TD = x_TD + post_norm(m_TF @ weights[layer + "down"].T, layer + "ffn_post_norm")
    return norm(x_TD, "final_norm") @ weights["embed" if tiny.tied else "head"].T


def _cos_and_sin(tiny: Tiny, T: int, local: bool) -> tuple[np.ndarray, np.ndarray]:
    """[T, 1, R] each, float64; local layers of gemma3 have a base of their own and no scaling."""
    base = tiny.local_rope_base if local else tiny.rope_base
    frequencies, magnitude = base ** (-np.arange(0, tiny.rotary, 2) / tiny.rotary), 1.0
    if tiny.rope and not local:
        frequencies = tiny.rope.frequencies(base, tiny.rotary, T)
        magnitude = tiny.rope.magnitude(tiny.context)
    angle = np.arange(T)[:, None, None] * frequencies
    return magnitude * np.cos(angle), magnitude * np.sin(angle)


def _pooled(y_TNH: np.ndarray, block: int) -> np.ndarray:
    whole = len(y_TNH) // block * block
    return y_TNH[:whole].reshape(-1, block, *y_TNH.shape[1:]).mean(1)


def _rotate(y_TNH: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    R = cos.shape[-1]
    a, b, rest = np.split(y_TNH, (R, 2 * R), -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)
