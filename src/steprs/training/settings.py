"""What the loop is told: plain numbers and names, no configuration objects and no defaults.

Defaults live in `steprs.config` alone; `steprs.build` copies them here field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSettings:
    """From log-probabilities and advantages to a scalar. See `steprs.losses` for the formulas.

    Attributes:
        kind: "policy-gradient" (no ratio), "ppo-clip", or "f-tis" (filtered, truncated importance sampling).
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        ratio_cap, divergence_limit: of "f-tis".
        kl_coef, kl_kind: weight and estimator of the KL divergence to the frozen reference.
        aggregation: "token-mean", "state-mean" or "sequence-mean".
        count_dead_groups: whether all-equal groups stay in the mean's denominator.
        logprobs: "trace", "one-step" or "coupled".
        states_per_rollout: states scored of each rollout, drawn without bias; None scores all.
        shrinkage: consecutive reveal steps merged into one state.
        prompt_mask_rate: share of prompt tokens masked by "one-step".
        inner_updates: optimiser steps a batch of rollouts.
    """

    kind: Literal["policy-gradient", "ppo-clip", "f-tis"]
    clip_low: float
    clip_high: float
    ratio_cap: float
    divergence_limit: float
    kl_coef: float
    kl_kind: Literal["k1", "k2", "k3"]
    aggregation: Literal["token-mean", "state-mean", "sequence-mean"]
    count_dead_groups: bool
    logprobs: Literal["trace", "one-step", "coupled"]
    states_per_rollout: int | None
    shrinkage: int
    prompt_mask_rate: float
    inner_updates: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageSettings:
    """What holds for every estimator: how progress is measured, and what is done with advantages afterwards.

    Attributes:
        coordinate, scope: of denoising progress, see `steprs.denoising_progress`.
        rms_match: rescaling to the RMS of centred advantages, see `steprs.stepwise_advantages`.
        normalise: "group-std" divides by the rewards' standard deviation, where nothing is weighted yet.
        components: names and weights of several rewards, for estimators that take them.
        reference_samples: rollouts of the base policy for each prompt, for estimators that take them.
        steps_used: a reward for few denoising steps; None leaves rewards as the verifier gave them.
    """

    coordinate: Literal["auto", "step", "mask", "rank"]
    scope: Literal["sequence", "block", "within"]
    rms_match: Literal["batch", "group", "state", "group-state"] | None
    normalise: Literal["none", "group-std"]
    components: Mapping[str, float]
    reference_samples: int
    steps_used: StepsUsed | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsUsed:
    """A reward that falls with the denoising steps a right rollout took; see `shaping`.

    Attributes:
        kind: "step-grpo" or "step-pruner".
        strength: how much of the reward the number of steps can take away, in (0, 1).
    """

    kind: Literal["step-grpo", "step-pruner"]
    strength: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimSettings:
    """AdamW and its learning rate over updates."""

    learning_rate: float
    schedule: Literal["linear", "cosine", "constant"]
    warmup_updates: int
    betas: tuple[float, float]
    weight_decay: float
    max_grad_norm: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSettings:
    """The dev evaluation during training. `every = 0` switches it off."""

    every: int
    samples: int
    k: tuple[int, ...]
    patience: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSettings:
    """Sizes, seed and housekeeping of a run. `store_rollouts` keeps those of every so many updates, 0 none."""

    seed: int
    updates: int
    prompts_per_update: int
    group_size: int
    token_budget: int
    max_rows: int
    max_prompt_tokens: int
    bad_rewards: Literal["error", "mask"]
    save_every: int
    keep_last: int
    log_completions: int
    store_rollouts: int
    loss: LossSettings
    advantage: AdvantageSettings
    optim: OptimSettings
    eval: EvalSettings
