"""The group-relative baselines: centred, standardised and leave-one-out rewards."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import torch

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Centred(Estimator):
    """A = r - p."""

    spec: ClassVar[Spec] = Spec(
        name="centred",
        title="centred GRPO",
        zero_sum="state",
        shift_invariant=True,
        role="baseline",
        source="Liu et al. 2025, arXiv 2503.20783 (Dr. GRPO)",
        notes="The baseline of every comparison; StepRS-GRPO at coefficient 0.",
    )

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        return Estimate(parts=AdvantageParts(sequence=groups.centred(batch)), memory=memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standardised(Estimator):
    """A = (r - p) / (std(r) + eps), GRPO's own advantage. `ddof` 1 and `eps` 1e-4 are those of TRL."""

    ddof: Literal[0, 1] = 1
    eps: float = 1e-4

    spec: ClassVar[Spec] = Spec(
        name="standardised",
        title="standardised GRPO",
        zero_sum="state",
        shift_invariant=True,
        reweights=True,
        role="reweight",
        source="Shao et al. 2024, arXiv 2402.03300",
        notes="Its weight of a prompt, 1 / std, is symmetric in p.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(self.ddof in (0, 1) and self.eps >= 0, f"ddof is {self.ddof}, eps {self.eps}; 0 or 1, and >= 0")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        score_PG = groups.standard_score(batch, ddof=self.ddof, eps=self.eps)
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Estimator):
    """A_i = r_i - mean of the others' rewards = n / (n - 1) (r_i - p)."""

    spec: ClassVar[Spec] = Spec(
        name="rloo",
        title="RLOO",
        zero_sum="state",
        shift_invariant=True,
        role="baseline",
        source="Ahmadian et al. 2024, arXiv 2402.14740",
    )

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        count_P1 = groups.size(batch)
        factor_P1 = torch.where(count_P1 > 1, count_P1 / (count_P1 - 1).clamp(min=1), 0.0)
        return Estimate(parts=AdvantageParts(sequence=groups.centred(batch) * factor_P1), memory=memory)
