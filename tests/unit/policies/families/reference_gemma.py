"""DiffusionGemma's network by hand in float64 numpy, one row, head and query at a time; src has no part in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from published_gemma import CHOSEN, EXPERT, EXPERTS, HEADS, KINDS, PREFIX, WIDTH, WINDOW
from torch import Tensor

Array = NDArray[np.float64]
EPS, CAP = 1e-6, 30.0


class Network:
    """The weights of a checkpoint, and what they say of a canvas behind clean text."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        self._tensors = {name: tensor.double().numpy() for name, tensor in tensors.items()}

    def weight(self, name: str) -> Array:
        return self._tensors[PREFIX + name]

    def logits(self, clean: list[int], canvas: list[int], probabilities: Array | None = None) -> Array:
        """[W, V], row l scores the token at canvas position l.

        Args:
            clean: ids of prompt and finished canvases, without padding.
            canvas: ids shown.
            probabilities: [W, V], what the step before gave each position; None in the first step.
        """
        keys = self._encode(clean)
        table = self.weight("embed_tokens.weight")
        embedded = table[canvas] * WIDTH**0.5
        expected = np.zeros_like(embedded) if probabilities is None else probabilities @ table * WIDTH**0.5
        normed = norm(expected, self.weight("self_conditioning.pre_norm.weight"))
        hidden = norm(embedded + self._gated("self_conditioning", normed), None)
        for layer in range(len(KINDS)):
            hidden = self._layer(layer, hidden, len(clean), keys[layer], decoder=True)[0]
        scores = norm(hidden, self.weight("norm.weight")) @ table.T
        return CAP * np.tanh(scores / CAP)

    def _encode(self, clean: list[int]) -> list[tuple[list[Array], list[Array]]]:
        """Keys and values of every layer."""
        hidden = self.weight("embed_tokens.weight")[clean] * WIDTH**0.5
        found = []
        for layer in range(len(KINDS)):
            hidden, keys = self._layer(layer, hidden, 0, ([], []), decoder=False)
            found.append(keys)
        return found

    def _layer(
        self, layer: int, hidden: Array, start: int, past: tuple[list[Array], list[Array]], *, decoder: bool
    ) -> tuple[Array, tuple[list[Array], list[Array]]]:
        def scale(name: str) -> Array:
            return self.weight(f"layers.{layer}.{name}.weight")

        normed = norm(hidden, scale("input_layernorm"))
        mixed, keys = self._attend(layer, normed, start, past, decoder=decoder)
        hidden = hidden + norm(mixed, scale("post_attention_layernorm"))
        dense = self._gated(f"layers.{layer}.mlp", norm(hidden, scale("pre_feedforward_layernorm")))
        sparse = self._experts(layer, hidden, norm(hidden, scale("pre_feedforward_layernorm_2")))
        both = norm(dense, scale("post_feedforward_layernorm_1")) + norm(sparse, scale("post_feedforward_layernorm_2"))
        hidden = hidden + norm(both, scale("post_feedforward_layernorm"))
        part = PREFIX if decoder else "model.encoder.language_model."
        return hidden * self._tensors[f"{part}layers.{layer}.layer_scalar"], keys

    def _attend(
        self, layer: int, normed: Array, start: int, past: tuple[list[Array], list[Array]], *, decoder: bool
    ) -> tuple[Array, tuple[list[Array], list[Array]]]:
        front, sliding = f"layers.{layer}.self_attn.", KINDS[layer] == "sliding_attention"
        size = len(self.weight(front + "q_norm.weight"))
        queries = (normed @ self.weight(front + "q_proj.weight").T).reshape(len(normed), HEADS, size)
        keys = (normed @ self.weight(front + "k_proj.weight").T).reshape(len(normed), -1, size)
        values = keys
        if sliding:
            values = (normed @ self.weight(front + "v_proj.weight").T).reshape(len(normed), -1, size)
        queries, keys = norm(queries, self.weight(front + "q_norm.weight")), norm(
            keys, self.weight(front + "k_norm.weight")
        )  # fmt: skip
        values = norm(values, None)
        here = [turn(keys[at], start + at, sliding) for at in range(len(normed))]
        all_keys, all_values = [*past[0], *here], [*past[1], *values]
        out = np.zeros((len(normed), HEADS, size))
        for at in range(len(normed)):
            query = turn(queries[at], start + at, sliding)
            if decoder:
                # A sliding decoder layer sees the last WINDOW - 1 clean tokens and all of its canvas.
                first, last = (max(0, start - WINDOW + 1) if sliding else 0), len(all_keys)
            else:
                first, last = (max(0, at - WINDOW + 1) if sliding else 0), at + 1
            for head in range(HEADS):
                shared = head // (HEADS // keys.shape[1])
                scores = np.array([query[head] @ all_keys[other][shared] for other in range(first, last)])
                chances = np.exp(scores - scores.max())
                seen = np.stack([all_values[other][shared] for other in range(first, last)])
                out[at, head] = chances / chances.sum() @ seen
        return out.reshape(len(normed), -1) @ self.weight(front + "o_proj.weight").T, (all_keys, all_values)

    def _gated(self, name: str, normed: Array) -> Array:
        gate, up = (normed @ self.weight(f"{name}.{part}_proj.weight").T for part in ("gate", "up"))
        return (gelu(gate) * up) @ self.weight(f"{name}.down_proj.weight").T

    def _experts(self, layer: int, residual: Array, normed: Array) -> Array:
        front = f"layers.{layer}."
        routed = norm(residual, None) * self.weight(front + "router.scale") * WIDTH**-0.5
        out = np.zeros_like(normed)
        for at, scores in enumerate(routed @ self.weight(front + "router.proj.weight").T):
            chances = np.exp(scores - scores.max())
            chances /= chances.sum()
            chosen = np.argsort(-chances)[:CHOSEN]
            for expert in chosen:
                both = self.weight(front + "experts.gate_up_proj")[expert] @ normed[at]
                inner = gelu(both[:EXPERT]) * both[EXPERT:]
                share = chances[expert] / chances[chosen].sum() * self.weight(front + "router.per_expert_scale")[expert]
                out[at] += share * (self.weight(front + "experts.down_proj")[expert] @ inner)
        assert EXPERTS > CHOSEN
        return out


def norm(rows: Array, scale: Array | None) -> Array:
    normed = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + EPS)
    return normed if scale is None else normed * scale


def turn(heads: Array, position: int, sliding: bool) -> Array:
    """Coordinates i and i + d/2 form a plane; in full layers only the first quarter of the planes is turned."""
    half = heads.shape[-1] // 2
    out = heads.copy()
    for i in range(half if sliding else half // 4):
        angle = position * (1e4 if sliding else 1e6) ** (-2 * i / heads.shape[-1])
        a, b = heads[:, i], heads[:, i + half]
        out[:, i], out[:, i + half] = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
    return out


def gelu(values: Array) -> Array:
    return 0.5 * values * (1 + np.tanh((2 / np.pi) ** 0.5 * (values + 0.044715 * values**3)))
