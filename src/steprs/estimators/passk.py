"""Objectives of pass@k: PKPO, baselined by leaving one out, and Pass@k Training."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit


def subset_ratio(kept_P1: Tensor, whole_P1: Tensor, size: int) -> Tensor:
    """C(kept, size) / C(whole, size), the share of subsets of `whole` in `kept`; exact 0 where there are none.

    >>> subset_ratio(torch.tensor([[3.0], [1.0]]), torch.tensor([[4.0], [4.0]]), 2).tolist()
    [[0.5], [0.0]]
    """
    less_K = torch.arange(size, dtype=torch.float64, device=kept_P1.device)
    factors_PK = (kept_P1 - less_K).clamp(min=0) / (whole_P1 - less_K).clamp(min=1)
    return factors_PK.prod(1, keepdim=True).where(whole_P1 >= size, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PKPO(Estimator):
    """A = C(n - c, k - 1) / C(n - 1, k - 1) n / (n - 1) (r - p) for c right ones of n; 0 once n - c < k - 1.

    k = 1 is RLOO. `k` is 4 by our choice; with `k_end` it moves evenly from `k` in the first update to `k_end` in the
    last, rounded to whole numbers: the paper anneals it. Groups left with fewer than k rollouts are silent.
    """

    k: int = 4
    k_end: int | None = None

    spec: ClassVar[Spec] = Spec(
        name="pkpo",
        title="PKPO",
        zero_sum="state",
        reweights=True,
        binary=True,
        role="objective",
        source="arXiv 2505.15201; the form of github.com/tajwarfahim/maxrl",
        read="code",
        fidelity="variant",
        notes="Right rollouts weigh the share of (k - 1)-subsets of the others that are all wrong; the baseline is the "
        "others' mean weight. The factor k of the gradient of pass@k is left out, as there. The expected weight is "
        "(1 - p)^(k - 1) + (k - 1) / (n - 1) p (1 - p)^(k - 2): the baseline is not quite independent of the rollout.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        fit = all(k >= 1 and k == int(k) for k in (self.k, self.k if self.k_end is None else self.k_end))
        refuse_unfit(fit, f"pkpo: k is {self.k}, k_end {self.k_end}; whole numbers >= 1 are needed")

    def smallest_group(self) -> int:
        """See the base."""
        return max(2, self.k, self.k_end or 0)

    def k_at(self, update: int, updates: int) -> int:
        """Tries that count in that update (from 1) of all.

        >>> [PKPO(k=8, k_end=1).k_at(update, 10) for update in (1, 2, 5, 10)]
        [8, 7, 5, 1]
        """
        end = self.k if self.k_end is None else self.k_end
        return round(self.k + (end - self.k) * (update - 1) / max(1, updates - 1))

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        k, size_P1 = self.k_at(batch.update, batch.updates), groups.size(batch)
        hard_P1 = subset_ratio(size_P1 - groups.right(batch), size_P1 - 1, k - 1)
        score_PG = hard_P1 * size_P1 / (size_P1 - 1).clamp(min=1) * groups.centred(batch)
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory, info={"k": float(k)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassKTraining(Estimator):
    """A = sqrt((1 - rho) / rho) (r - p) / (1 - p), rho = 1 - C(n - c, k) / C(n, k) being the pass@k of the group.

    In full, with s = sqrt(rho (1 - rho)) + eps: (1 - rho) / s for right rollouts, for wrong ones
    (1 - rho - C(n - c - 1, k - 1) / C(n - 1, k - 1)) / s; 0 once n - c < k. k = 1 is standardised GRPO. `eps` 1e-6 is
    that of the release, `k` 4 our choice. Groups left with fewer than k rollouts are silent.
    """

    k: int = 4
    eps: float = 1e-6

    spec: ClassVar[Spec] = Spec(
        name="passk-training",
        title="Pass@k Training",
        zero_sum="state",
        reweights=True,
        binary=True,
        role="objective",
        source="arXiv 2508.10751, github.com/RUCAIBox/Passk_Training",
        read="code",
        notes="The release finds groups without signal by comparing a float with 0; here rho is exactly 0 or 1 then.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        fit = self.k >= 1 and self.k == int(self.k) and self.eps >= 0
        refuse_unfit(fit, f"passk-training: k is {self.k}, eps {self.eps}; a whole number >= 1 and >= 0 are needed")

    def smallest_group(self) -> int:
        """See the base."""
        return max(2, self.k)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        size_P1, right_P1 = groups.size(batch), groups.right(batch)
        fail_P1 = subset_ratio(size_P1 - right_P1, size_P1, self.k)
        others_P1 = subset_ratio(size_P1 - right_P1 - 1, size_P1 - 1, self.k - 1)
        alive_PG = (fail_P1 > 0) & (fail_P1 < 1) & batch.valid_PG
        value_PG = torch.where(batch.rewards_PG > 0, fail_P1, fail_P1 - others_P1)
        score_PG = torch.where(alive_PG, value_PG / ((fail_P1 * (1 - fail_P1)).sqrt() + self.eps), 0.0)
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)
