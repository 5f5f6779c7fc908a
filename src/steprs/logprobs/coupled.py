"""Two forwards a rollout with complementary masks: every token is predicted exactly once, from a random context."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..policies.base import Policy
from ..randomness import uniforms
from ..types import Trajectory
from .noise import Noise, check_keys
from .plan import DEFAULT_TOKEN_BUDGET, ScoringBatch, make_plan
from .score import score_plan
from .trace import active_tokens


def plan_coupled(
    trajectory: Trajectory,
    policy: Policy,
    *,
    keys_B: Tensor,
    rows: Tensor | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    mask_rate_range: tuple[float, float] = (0.2, 0.8),
) -> list[ScoringBatch]:
    """Micro-batches of two complementary maskings of each completion (coupled-GRPO, Gong et al. 2025, DiffuCoder).

    A rate is drawn for each rollout; a token is hidden in the first forward with that probability, and in the
    second iff it was shown in the first. A block-causal policy sees each block so masked behind finished blocks.

    Args:
        trajectory: the rollouts.
        policy: decides attention and block layout.
        keys_B: int64 [B] hash of what names each rollout.
        rows: index of the rollouts to score; None = all.
        token_budget: most positions of one forward.
        mask_rate_range: the rate is uniform between these two, 0 <= low <= high <= 1.

    Raises:
        ArgumentError: the range is none, or the keys do not fit.
    """
    low, high = mask_rate_range
    if not 0.0 <= low <= high <= 1.0:
        raise ArgumentError(f"mask_rate_range is {mask_rate_range}; give (low, high) with 0 <= low <= high <= 1")
    scored_BL = active_tokens(trajectory, rows)
    batch, length = scored_BL.shape
    keys_B = check_keys(keys_B, batch, "coupled scoring")
    rate_B1 = low + (high - low) * uniforms(keys_B, 0, torch.zeros(1, dtype=torch.int64), stream=0)
    second_BL = uniforms(keys_B, 0, torch.arange(length), stream=1) >= rate_B1
    noise = Noise(
        state_BL=second_BL.long().masked_fill(trajectory.unmask_step_BL < 0, -1),
        cumulative=False,
        scored_BL=scored_BL,
        weight_B=torch.ones(batch, device=scored_BL.device),
    )
    return make_plan(trajectory, policy, noise, token_budget)


def coupled_logprobs(
    policy: Policy,
    trajectory: Trajectory,
    *,
    keys_B: Tensor,
    rows: Tensor | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    mask_rate_range: tuple[float, float] = (0.2, 0.8),
) -> Tensor:
    """Log-probability of each valid token in the one of two complementary masks that hides it.

    Args:
        policy: gradients flow into its weights.
        trajectory: the rollouts.
        keys_B: see `plan_coupled`, as the other arguments.
        rows: index of the rollouts to score.
        token_budget: most positions of one forward.
        mask_rate_range: range of the share hidden in the first forward.

    Returns:
        [B, L] in nats, 0 where a token was not scored.

    Raises:
        ArgumentError: see `plan_coupled`.
    """
    plan = plan_coupled(
        trajectory, policy, keys_B=keys_B, rows=rows, token_budget=token_budget, mask_rate_range=mask_rate_range
    )
    return score_plan(policy, trajectory, plan)
