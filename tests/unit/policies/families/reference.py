"""The families' networks by hand in float64 numpy, one row, one head and one query at a time; src has no part in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from published import HEAD, HEADS, LAYERS, Layout
from torch import Tensor

Array = NDArray[np.float64]


def reference_logits(layout: Layout, tensors: Mapping[str, Tensor], ids: list[int], sees: Array) -> Array:
    """Row l scores the token at l.

    Args:
        layout: names and hyperparameters.
        tensors: the checkpoint's own.
        ids: one sequence without padding.
        sees: [T, T], 1 where the query may attend to the key.
    """

    def weight(role: str, layer: int = 0, expert: int = 0) -> Array:
        return tensors[layout.names[role].format(layer, expert)].double().numpy()

    hidden = weight("embed")[ids]
    for layer in range(LAYERS):
        normed = rms_norm(hidden, weight("norm1", layer), layout.eps)
        hidden = hidden + attention(layout, normed, sees, lambda role, layer=layer: weight(role, layer))
        normed = rms_norm(hidden, weight("norm2", layer), layout.eps)
        hidden = hidden + feed_forward(layout, normed, lambda role, expert=0, layer=layer: weight(role, layer, expert))
    rows = rms_norm(hidden, weight("final"), layout.eps) @ weight("head").T
    return np.stack([rows[max(at - 1, 0)] for at in range(len(ids))]) if layout.shifted else rows


def feed_forward(layout: Layout, normed: Array, weight) -> Array:  # type: ignore[no-untyped-def]
    if layout.chosen is None:
        return gated(normed, weight)
    out = np.zeros_like(normed)
    for at, scores in enumerate(normed @ weight("router").T):
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        for expert in np.argsort(-chances)[: layout.chosen]:
            mixed = gated(normed[at : at + 1], lambda role, expert=expert: weight(role, expert))
            out[at] += chances[expert] * mixed[0]
    return out


def gated(normed: Array, weight) -> Array:  # type: ignore[no-untyped-def]
    gate, up = normed @ weight("gate").T, normed @ weight("up").T
    return (gate / (1 + np.exp(-gate)) * up) @ weight("down").T


def attention(layout: Layout, normed: Array, sees: Array, weight) -> Array:  # type: ignore[no-untyped-def]
    length = len(normed)
    parts = {}
    for role in "qkv":
        flat = normed @ weight(role).T
        if f"{role}_bias" in layout.names:
            flat = flat + weight(f"{role}_bias")
        parts[role] = flat.reshape(length, -1, HEAD)
        if f"{role}_norm" in layout.names:
            parts[role] = rms_norm(parts[role], weight(f"{role}_norm"), layout.eps)
    out = np.zeros((length, HEADS, HEAD))
    for head in range(HEADS):
        shared = head // (HEADS // layout.kv_heads)
        keys = [rotate(parts["k"][at, shared], at, layout.theta) for at in range(length)]
        for at in range(length):
            query = rotate(parts["q"][at, head], at, layout.theta)
            scores = np.array([query @ key / HEAD**0.5 for key in keys])
            chances = np.where(sees[at] > 0, np.exp(scores - scores.max()), 0.0)
            out[at, head] = chances / chances.sum() @ parts["v"][:, shared]
    return out.reshape(length, -1) @ weight("o").T


def rotate(vector: Array, position: int, theta: float) -> Array:
    """Coordinate i and i + d/2 form a plane, turned by position * theta^(-2i/d)."""
    half = len(vector) // 2
    turned = np.empty_like(vector)
    for i in range(half):
        angle = position * theta ** (-2 * i / len(vector))
        a, b = vector[i], vector[i + half]
        turned[i], turned[i + half] = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
    return turned


def rms_norm(rows: Array, scale: Array, eps: float) -> Array:
    return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + eps) * scale


def visible(layout: Layout, length: int) -> Array:
    """Who sees whom: everybody, or one's own block and those before, counted from the first token."""
    at = np.arange(length)
    if layout.block_size is None:
        return np.ones((length, length))
    return (at[None, :] // layout.block_size <= at[:, None] // layout.block_size).astype(float)
