"""MAPO: from the standard score to the deviation in per cent as a group becomes certain."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class MAPO(Estimator):
    """A = (1 - lambda) z + lambda (r - p) / p with lambda = 1 - 4 p (1 - p), so 0 at p = 1/2; z has ddof 0.

    The weight of r - p is 4 sqrt(p (1 - p)) + (1 - 2 p)^2 / p: near MaxRL's for hard prompts, near 1 for easy ones.
    """

    spec: ClassVar[Spec] = Spec(
        name="mapo",
        title="MAPO",
        zero_sum="state",
        reweights=True,
        binary=True,
        role="reweight",
        source="arXiv 2509.18849",
        read="paper",
        notes="Groups of 12 were the best of their table.",
    )

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        rate_P1 = groups.pass_rate(batch)
        certain_P1 = 1 - 4 * rate_P1 * (1 - rate_P1)
        share_PG = torch.where(rate_P1 > 0, groups.centred(batch) / rate_P1.where(rate_P1 > 0, 1.0), 0.0)
        score_PG = (1 - certain_P1) * groups.standard_score(batch) + certain_P1 * share_PG
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)
