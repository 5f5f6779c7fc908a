"""Every token in the very state that revealed it: the trajectory's own log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..policies.base import Policy
from ..randomness import uniforms
from ..states import merge_steps
from ..types import Trajectory
from .noise import Noise, check_keys
from .plan import DEFAULT_TOKEN_BUDGET, ScoringBatch, make_plan
from .revised import RevisedBatch, plan_revised
from .score import score_plan


def plan_trace(
    trajectory: Trajectory,
    policy: Policy,
    *,
    rows: Tensor | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    shrinkage: int = 1,
    states_per_rollout: int | None = None,
    keys_B: Tensor | None = None,
) -> Sequence[ScoringBatch | RevisedBatch]:
    """Micro-batches that score the recorded denoising states.

    With `states_per_rollout = n`, n of a rollout's S states that reveal valid tokens are drawn without replacement
    and their tokens get the importance weight S / n, so every sum over tokens keeps its expectation.

    Args:
        trajectory: the rollouts.
        policy: decides attention and block layout.
        rows: int64 or bool index of the rollouts to score; None = all. Rollouts keep their numbers.
        token_budget: most positions of one forward.
        shrinkage: merge this many consecutive reveal steps into one state first (see `states.merge_steps`).
        states_per_rollout: score only so many states of each rollout; None = all.
        keys_B: int64 [B] hash of what names each rollout; needed when states are drawn.

    Raises:
        ArgumentError: a count below 1, missing keys, or rollouts of another kind of policy.
    """
    if shrinkage != 1:
        trajectory = merge_steps(trajectory, shrinkage)
    scored_BL = active_tokens(trajectory, rows)
    weight_B = torch.ones(scored_BL.shape[0], device=scored_BL.device)
    if states_per_rollout is not None:
        if states_per_rollout < 1:
            raise ArgumentError(f"states_per_rollout is {states_per_rollout}; give a count >= 1, or None for all")
        keys_B = check_keys(keys_B, scored_BL.shape[0], "states_per_rollout")
        scored_BL, weight_B = _draw_states(trajectory.unmask_step_BL, scored_BL, states_per_rollout, keys_B)
    if trajectory.revisions is not None:
        return plan_revised(trajectory, policy, scored_BL, weight_B, token_budget)
    noise = Noise(state_BL=trajectory.unmask_step_BL, cumulative=True, scored_BL=scored_BL, weight_B=weight_B)
    return make_plan(trajectory, policy, noise, token_budget)


def trajectory_logprobs(
    policy: Policy,
    trajectory: Trajectory,
    *,
    rows: Tensor | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    shrinkage: int = 1,
    states_per_rollout: int | None = None,
    keys_B: Tensor | None = None,
) -> Tensor:
    """Log-probability of each token in the state that revealed it, under the distribution it was sampled from.

    Args:
        policy: gradients flow into its weights.
        trajectory: the rollouts.
        rows: see `plan_trace`, as the other arguments.
        token_budget: most positions of one forward.
        shrinkage: consecutive reveal steps merged into one state.
        states_per_rollout: score a drawn subset of the states.
        keys_B: needed when states are drawn.

    Returns:
        [B, L] in nats, 0 where a token was not scored. Not weighted: use the plan's `weight_N` with drawn states.

    Raises:
        ArgumentError: see `plan_trace`.
    """
    plan = plan_trace(
        trajectory, policy, rows=rows, token_budget=token_budget, shrinkage=shrinkage,
        states_per_rollout=states_per_rollout, keys_B=keys_B,
    )  # fmt: skip
    return score_plan(policy, trajectory, plan)


def active_tokens(trajectory: Trajectory, rows: Tensor | None) -> Tensor:
    """Valid tokens of the rollouts asked for: bool [B, L]."""
    valid_BL = trajectory.completion_mask_BL & (trajectory.unmask_step_BL >= 0)
    if rows is None:
        return valid_BL
    active_B = torch.zeros(valid_BL.shape[0], dtype=torch.bool, device=valid_BL.device)
    active_B[rows] = True
    return valid_BL & active_B[:, None]


def _draw_states(state_BL: Tensor, scored_BL: Tensor, count: int, keys_B: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens of `count` states of each row, drawn without replacement, and the weights S / min(count, S)."""
    states = int(state_BL.max().clamp(min=0)) + 1
    present_BS = torch.zeros(state_BL.shape[0], states, dtype=torch.int64, device=state_BL.device)
    present_BS.scatter_add_(1, state_BL.clamp(min=0), scored_BL.long())
    priority_BS = uniforms(keys_B, 0, torch.arange(states), stream=2).masked_fill(present_BS == 0, 2.0)
    rank_BS = priority_BS.argsort(1).argsort(1)
    drawn_BL = (rank_BS < count).gather(1, state_BL.clamp(min=0))
    available_B = (present_BS > 0).sum(1)
    return scored_BL & drawn_BL, available_B / available_B.clamp(min=1, max=count)
