"""One forward a rollout: every token predicted from nothing but the prompt (or the blocks before its own)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..policies.base import Policy, count_before
from ..randomness import uniforms
from ..types import Trajectory
from .noise import Noise, check_keys
from .plan import DEFAULT_TOKEN_BUDGET, ScoringBatch, make_plan
from .score import score_plan
from .trace import active_tokens


def plan_one_step(
    trajectory: Trajectory,
    policy: Policy,
    *,
    keys_B: Tensor,
    rows: Tensor | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    prompt_mask_rate: float = 0.15,
) -> list[ScoringBatch]:
    """Micro-batches of fully masked completions behind randomly masked prompts (diffu-GRPO, Zhao et al. 2025, d1).

    A bidirectional policy sees the masked prompt and an empty canvas. A block-causal policy sees each block empty
    behind the finished blocks before it, which is the only empty state it was ever trained on or decodes from.

    Args:
        trajectory: the rollouts.
        policy: decides attention and block layout.
        keys_B: int64 [B] hash of what names each rollout; change it from one inner update to the next to draw
            other prompt masks, and score old and new policy with the same keys.
        rows: index of the rollouts to score; None = all.
        token_budget: most positions of one forward.
        prompt_mask_rate: probability, in [0, 1), that a prompt token is masked.

    Raises:
        ArgumentError: the rate is out of range, or the keys do not fit.
    """
    if not 0.0 <= prompt_mask_rate < 1.0:
        raise ArgumentError(f"prompt_mask_rate is {prompt_mask_rate}; give a probability in [0, 1)")
    scored_BL = active_tokens(trajectory, rows)
    keys_B = check_keys(keys_B, scored_BL.shape[0], "one-step scoring")
    chance_BC = uniforms(keys_B, 0, count_before(trajectory.prompt_mask_BC))
    noise = Noise(
        state_BL=trajectory.unmask_step_BL.clamp(max=0),
        cumulative=False,
        scored_BL=scored_BL,
        weight_B=torch.ones(scored_BL.shape[0], device=scored_BL.device),
        hidden_prompt_BC=(chance_BC < prompt_mask_rate) & trajectory.prompt_mask_BC,
    )
    return make_plan(trajectory, policy, noise, token_budget)


def one_step_logprobs(
    policy: Policy,
    trajectory: Trajectory,
    *,
    keys_B: Tensor,
    rows: Tensor | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    prompt_mask_rate: float = 0.15,
) -> Tensor:
    """Log-probability of each valid token from one forward of the fully masked completion.

    Args:
        policy: gradients flow into its weights.
        trajectory: the rollouts.
        keys_B: see `plan_one_step`, as the other arguments.
        rows: index of the rollouts to score.
        token_budget: most positions of one forward.
        prompt_mask_rate: probability that a prompt token is masked.

    Returns:
        [B, L] in nats, 0 where a token was not scored.

    Raises:
        ArgumentError: see `plan_one_step`.
    """
    plan = plan_one_step(
        trajectory, policy, keys_B=keys_B, rows=rows, token_budget=token_budget, prompt_mask_rate=prompt_mask_rate
    )
    return score_plan(policy, trajectory, plan)
