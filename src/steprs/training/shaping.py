"""A reward for few denoising steps, for decoding whose number of steps is not fixed. Wrong answers get no credit.

With k the steps of a rollout, over the right rollouts of its group:

| kind | reward of a right rollout |
|---|---|
| `step-grpo` | 1 - strength * tanh((k - mean k) / mean k) |
| `step-pruner` | 1 - strength * min(1, (k - min k) / min k) |

after Step-GRPO (arXiv 2604.16890) and Step Pruner (arXiv 2510.03805) as described in secondary sources, with
denoising steps in the place of reasoning steps. `step-grpo` is its accuracy term, with strength for its beta; the mix
with a format reward is left to the task. The coefficients of Step Pruner were not to be had: its excess is measured as
above, which is this project's choice.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..types import Rewards
from .settings import StepsUsed


def reward_few_steps(rewards: Rewards, num_steps_B: Tensor, settings: StepsUsed) -> Rewards:
    """Rewards of right rollouts scaled by how many steps they took; graded from here on, so `binary` is false.

    Args:
        rewards: as the verifier gave them.
        num_steps_B: int64, denoising steps of every rollout.
        settings: kind and strength.

    >>> from steprs.types import Verdict
    >>> right = Verdict(reward=1.0, status="right")
    >>> given = Rewards(rewards_PG=torch.ones(1, 2).double(), valid_PG=torch.ones(1, 2).bool(),
    ...                 verdicts=(right, right), binary=True)
    >>> reward_few_steps(given, torch.tensor([4, 6]), StepsUsed(kind="step-pruner", strength=0.5)).rewards_PG.tolist()
    [[1.0, 0.75]]
    """
    shape = rewards.rewards_PG.shape
    steps_PG = num_steps_B.view(shape).to(rewards.rewards_PG.device).double()
    is_right = [verdict.status == "right" for verdict in rewards.verdicts]
    right_PG = torch.tensor(is_right, device=steps_PG.device).view(shape) & rewards.valid_PG
    if settings.kind == "step-grpo":
        mean_P1 = (steps_PG * right_PG).sum(1, keepdim=True) / right_PG.sum(1, keepdim=True).clamp(min=1)
        kept_PG = 1 - settings.strength * torch.tanh((steps_PG - mean_P1) / mean_P1.clamp(min=1))
    else:
        least_P1 = steps_PG.masked_fill(~right_PG, torch.inf).amin(1, keepdim=True).clamp(min=1)
        excess_PG = torch.where(right_PG, (steps_PG - least_P1) / least_P1, 0.0)
        kept_PG = 1 - settings.strength * excess_PG.clamp(max=1)
    shaped_PG = torch.where(right_PG, rewards.rewards_PG * kept_PG, rewards.rewards_PG)
    return dataclasses.replace(rewards, rewards_PG=shaped_PG, binary=False)
