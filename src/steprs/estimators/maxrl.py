"""MaxRL: maximum likelihood of being right, from samples."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaxRL(Estimator):
    """A = (r - p) / (p + eps): the gradient of log p, the weight 1 / p of a prompt has no bound but the group size.

    It is the limit of b times risk-sensitive GRPO for b -> infinity. `eps` 1e-6 is that of the release.
    """

    eps: float = 1e-6

    spec: ClassVar[Spec] = Spec(
        name="maxrl",
        title="MaxRL",
        zero_sum="state",
        reweights=True,
        binary=True,
        role="objective",
        source="arXiv 2602.02710, github.com/tajwarfahim/maxrl",
        read="code",
        notes="The release also has truncated series, one-sided and clipped forms, which are not here.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(self.eps >= 0, f"maxrl: eps is {self.eps}; >= 0 is needed")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        rate_P1 = groups.pass_rate(batch) + self.eps
        score_PG = groups.centred(batch) / rate_P1.where(rate_P1 > 0, 1.0)
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)
