"""What a training run holds at once, from counts alone: no forward, and no model of that size needed.

An estimate: fragmentation, kernels' workspaces and, on several processes, what a parallel engine gathers come on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config import RunConfig
from ..logprobs.score import HEAD_ELEMENTS
from ..policies.base import Policy

GIB = 2**30
# AdamW keeps two moments, and a gradient stands beside each weight; all in float32.
OPTIMISER_BYTES = 12
# Hidden-size numbers that a layer keeps of a token for the backward pass, gated MLP included.
KEPT_PER_LAYER = 34
# Numbers alive of a token in one layer of a forward without gradients.
ALIVE_IN_FORWARD = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """What the estimate needs to know of a policy.

    Attributes:
        weights, trained: numbers.
        weight_bytes: of all weights, trained ones in float32.
        hidden, layers, heads, vocabulary: of the configuration.
        cached: numbers of one token and layer in the key-value cache.
        compute_bytes: of one number in a forward.
        scores_kept: the attention backend writes its scores down (eager), row length by row length a head.
    """

    weights: int
    trained: int
    weight_bytes: float
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    cached: int
    compute_bytes: int
    scores_kept: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes of one process.

    Attributes:
        weights: of the policy.
        optimiser: gradients and moments of what is trained.
        reference: a frozen copy, for KL or reference rewards without adapters.
        activations: one micro-batch of the token budget, forward and backward.
        logits: the chunk over the vocabulary that scoring holds at once, with its gradient.
        rollout: rows decoded at once: their cache or canvas, and the logits of one step.
    """

    weights: float
    optimiser: float
    reference: float
    activations: float
    logits: float
    rollout: float

    @property
    def peak(self) -> float:
        """Rollouts and updates take turns, so the larger of the two counts."""
        return self.weights + self.optimiser + self.reference + max(self.activations + self.logits, self.rollout)

    def lines(self) -> tuple[str, str]:
        """For people."""
        update = {
            "weights": self.weights,
            "gradients and optimiser": self.optimiser,
            "reference": self.reference,
            "activations": self.activations,
            "logits": self.logits,
        }
        parts = ", ".join(f"{name} {shown(value)}" for name, value in update.items() if value)
        return (
            f"about {shown(self.peak)} a process at its peak",
            f"{parts}; while decoding {shown(self.rollout)} in place of the last two",
        )


def shown(size: float) -> str:
    """Bytes as MiB, or GiB from one on.

    >>> shown(3 * 2**20), shown(1.5 * 2**30)
    ('3 MiB', '1.5 GiB')
    """
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / 2**20:,.0f} MiB"


def size_of(policy: Policy) -> ModelSize:
    """The counts of a loaded policy."""
    text = policy.model.config.get_text_config()
    weights = list(policy.module.parameters())
    return ModelSize(
        weights=sum(weight.numel() for weight in weights),
        trained=sum(weight.numel() for weight in policy.parameters()),
        weight_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
        hidden=text.hidden_size,
        layers=text.num_hidden_layers,
        heads=text.num_attention_heads,
        vocabulary=policy.vocab_size,
        cached=_cached_numbers(text) if policy.attention == "block_causal" else 0,
        compute_bytes=policy.compute_dtype.itemsize,
        scores_kept=text._attn_implementation == "eager",
    )


def _cached_numbers(text: Any) -> int:
    """Keys and values of one token in one layer."""
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(2 * (getattr(text, "num_key_value_heads", None) or text.num_attention_heads) * head)


def estimate(config: RunConfig, size: ModelSize, *, prompt: int, row: int, cached: bool, reference: bool) -> Memory:
    """The memory of one process.

    Args:
        config: resolved.
        size: of the policy.
        prompt: tokens of a prompt.
        row: positions of one row of a scoring forward.
        reference: a second copy of the policy is held.
        cached: rollouts keep keys and values of what is finished (block-causal policies).
    """
    budget = max(int(config.train.token_budget), row)
    length, block = int(config.sampler.length or 0), int(config.sampler.block_size or 0)
    number = size.compute_bytes
    per_layer = size.hidden * KEPT_PER_LAYER * number
    if size.scores_kept:
        per_layer += 2 * row * size.heads * number
    # With checkpointing a layer's input is kept, and one layer at a time is computed again.
    kept = size.layers * size.hidden * number + per_layer if config.policy.gradient_checkpointing else None
    activations = budget * (size.layers * per_layer if kept is None else kept)
    rows = min(config.sampler.max_rows, config.train.prompts_per_update * config.train.group_size)
    whole = rows * (prompt + length)
    stored = whole * size.layers * size.cached if cached else 0
    read = rows * block if cached else whole
    return Memory(
        weights=size.weight_bytes,
        optimiser=OPTIMISER_BYTES * size.trained,
        reference=4.0 * size.weights if reference else 0.0,
        # The mask has a byte for each pair of positions of a row.
        activations=activations + budget * row,
        logits=3.0 * 4 * min(HEAD_ELEMENTS, budget * size.vocabulary),
        # Logits come in the computation's format and are sampled in float32.
        rollout=stored * number
        + read * size.hidden * ALIVE_IN_FORWARD * number
        + rows * block * size.vocabulary * (4 + number),
    )
