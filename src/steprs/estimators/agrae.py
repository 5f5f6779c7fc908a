"""A-GRAE: right rollouts held back and easy prompts first, until the whole batch is often right."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit


@dataclasses.dataclass(frozen=True, kw_only=True)
class AGRAE(Estimator):
    """A = w/2 z / sqrt(p) + (1 - w)/2 z / sqrt(1 - p), positive ones times min(1, w / alpha).

    w is the mean reward of the whole batch. While it is low, right rollouts are held back and easy prompts favoured; as
    it grows the weight moves to hard ones. z has ddof 0. `alpha` 1 is the paper's for mathematics, 0.5 for geometry and
    medicine.
    """

    alpha: float = 1.0

    spec: ClassVar[Spec] = Spec(
        name="a-grae",
        title="A-GRAE",
        coupling="batch",
        zero_sum="none",
        reweights=True,
        binary=True,
        role="reweight",
        source="arXiv 2602.05548, github.com/HKU-HealthAI/A-GRAE",
        read="paper and code",
        notes="The paper is built. The release has 1 - sqrt(p) in place of sqrt(1 - p), and alpha as a constant. w is "
        "the mean over the rollouts of all processes.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(self.alpha > 0, f"a-grae: alpha is {self.alpha}; > 0 is needed")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        accuracy, rate_P1 = groups.mean_of_batch(batch), groups.pass_rate(batch)
        alive_P1 = ~groups.equal_rewards(batch)
        # A group of equal rewards has z = 0, whatever it is divided by.
        hard_P1, easy_P1 = (side.where(alive_P1, 1.0).sqrt() for side in (rate_P1, 1 - rate_P1))
        weight_P1 = accuracy / 2 / hard_P1 + (1 - accuracy) / 2 / easy_P1
        score_PG = weight_P1 * groups.standard_score(batch)
        score_PG = torch.where(score_PG > 0, score_PG * (accuracy / self.alpha).clamp(max=1), score_PG)
        parts = AdvantageParts(sequence=score_PG, weighted=True)
        return Estimate(parts=parts, memory=memory, info={"batch_accuracy": float(accuracy)})
