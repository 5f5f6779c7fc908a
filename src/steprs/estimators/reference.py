"""Baselines from rollouts of the base policy on the same prompts: PVPO and AAPO."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from torch import Tensor

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit

_COST = "M rollouts of the base policy for each prompt, once"


def over_reference(batch: EstimatorBatch) -> Tensor:
    """r - mean of the reference rewards, float64 [P, G]; 0 for a rollout that is not valid."""
    assert batch.reference_rewards_PM is not None
    mean_P1 = batch.reference_rewards_PM.double().mean(1, keepdim=True)
    return (batch.rewards_PG.double() - mean_P1) * batch.valid_PG


@dataclasses.dataclass(frozen=True, kw_only=True)
class PVPO(Estimator):
    """A = r - mean of the reference rewards of the prompt: no standard deviation, and no group is silent.

    The baseline does not depend on the rollouts it is subtracted from, so it is unbiased; its variance grows as the
    policy leaves the base.
    """

    spec: ClassVar[Spec] = Spec(
        name="pvpo",
        title="PVPO",
        requires=("reference_rewards_PM",),
        zero_sum="none",
        alive=True,
        role="baseline",
        extra_forwards=_COST,
        verifier_calls="M for each prompt, once",
        source="arXiv 2508.21104",
        read="paper",
        notes="For any rewards. The paper draws as many reference rollouts as rollouts (5 or 16) and draws them anew "
        "every 500 updates; its filter of prompts and its trajectories of a larger model are not here.",
    )

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        return Estimate(parts=AdvantageParts(sequence=over_reference(batch)), memory=memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AAPO(Estimator):
    """A = z + clip(r - mean of the reference rewards, -clip_low, clip_high), z with ddof 1 and + 1e-4.

    Groups of equal rewards keep the second term. Both clips 0 leave z. 0.2 and 0.28 are the release's.
    """

    clip_low: float = 0.2
    clip_high: float = 0.28

    spec: ClassVar[Spec] = Spec(
        name="aapo",
        title="AAPO",
        requires=("reference_rewards_PM",),
        zero_sum="none",
        alive=True,
        reweights=True,
        role="baseline",
        extra_forwards=_COST,
        verifier_calls="M for each prompt, once",
        source="arXiv 2505.14264",
        read="code",
        fidelity="variant",
        notes="For any rewards. The release pairs rollout i with reference rollout i; here all have the mean, which "
        "does not depend on their order. Its loss has no ratio. One branch of its code leaves a variable unbound.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        fit = self.clip_low >= 0 and self.clip_high >= 0
        refuse_unfit(fit, f"aapo: clip_low is {self.clip_low}, clip_high {self.clip_high}; both must be >= 0")
        if self.clip_low == 0 and self.clip_high == 0:
            self.declare(zero_sum="state", alive=False, shift_invariant=True)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        lead_PG = over_reference(batch).clamp(-self.clip_low, self.clip_high)
        score_PG = groups.standard_score(batch, ddof=1, eps=1e-4) + lead_PG
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)
