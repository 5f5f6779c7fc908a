"""Statistics of groups that leave out rollouts whose reward was masked."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..advantages.parts import group_std
from .base import EstimatorBatch

Base = Literal["standardised", "centred"]


def mean_over_group(values_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Mean over each group's valid rollouts, float64 [P, 1]; 0 where there is none."""
    valid_PG = valid_PG.double()
    return (values_PG.double() * valid_PG).sum(1, keepdim=True) / valid_PG.sum(1, keepdim=True).clamp(min=1)


def size(batch: EstimatorBatch) -> Tensor:
    """Valid rollouts of each group, float64 [P, 1]."""
    return batch.valid_PG.double().sum(1, keepdim=True)


def pass_rate(batch: EstimatorBatch) -> Tensor:
    """p, the mean reward of each group, float64 [P, 1]."""
    return mean_over_group(batch.rewards_PG, batch.valid_PG)


def right(batch: EstimatorBatch) -> Tensor:
    """c, right rollouts of each group as far as rewards are 0 or 1, float64 [P, 1]; a whole number."""
    return (batch.rewards_PG.double() * batch.valid_PG).sum(1, keepdim=True)


def centred(batch: EstimatorBatch) -> Tensor:
    """r - p, float64 [P, G]; 0 for a rollout that is not valid, and exactly 0 in groups of equal rewards."""
    # The mean of equal rewards is rounded, and what it leaves would count as a signal to whatever is divided by it.
    centred_PG = (batch.rewards_PG.double() - pass_rate(batch)) * batch.valid_PG
    return centred_PG.masked_fill(equal_rewards(batch), 0.0)


def standard_score(batch: EstimatorBatch, *, ddof: int = 0, eps: float = 0.0) -> Tensor:
    """z = (r - p) / (std + eps), float64 [P, G]; 0 in groups of equal rewards.

    For rewards 0 and 1 and ddof 0, std is sqrt(p (1 - p)).
    """
    std_P1 = group_std(batch.rewards_PG, batch.valid_PG, ddof=ddof) + eps
    alive_P1 = ~equal_rewards(batch)
    return torch.where(alive_P1, centred(batch) / torch.where(alive_P1, std_P1, 1.0), 0.0)


def base_score(batch: EstimatorBatch, base: Base) -> Tensor:
    """The score that a wrapper weighs: z with ddof 0, or r - p; float64 [P, G]."""
    return standard_score(batch) if base == "standardised" else centred(batch)


def mean_of_batch(batch: EstimatorBatch) -> Tensor:
    """Mean reward of all valid rollouts of all processes, a float64 number; 0 where there is none."""
    return mean_and_size(batch)[0]


def mean_and_size(batch: EstimatorBatch) -> tuple[Tensor, Tensor]:
    """`mean_of_batch`, and over how many rollouts it is, which tells a mean of nothing from a mean of 0."""
    total, count = batch.total(torch.stack([right(batch).sum(), size(batch).sum()]))
    return total / count.clamp(min=1), count


def equal_rewards(batch: EstimatorBatch) -> Tensor:
    """Groups without signal: all valid rewards equal up to rounding, or fewer than two; bool [P, 1].

    The tolerance is that of `steprs.advantages.dead_groups`: 1e-8 max(1, max |r|).
    """
    rewards_PG, valid_PG = batch.rewards_PG.double(), batch.valid_PG.bool()
    high_P1 = rewards_PG.masked_fill(~valid_PG, -torch.inf).amax(1, keepdim=True)
    low_P1 = rewards_PG.masked_fill(~valid_PG, torch.inf).amin(1, keepdim=True)
    largest_P1 = (rewards_PG.abs() * valid_PG).amax(1, keepdim=True).clamp(min=1.0)
    return (size(batch) < 2) | (high_P1 - low_P1 <= 1e-8 * largest_P1)
