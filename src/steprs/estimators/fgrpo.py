"""F-GRPO: prompts weighed by how often they fail, in the way of the focal loss."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, get_args

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit


@dataclasses.dataclass(frozen=True, kw_only=True)
class FGRPO(Estimator):
    """A = (1 - p)^gamma z, or (1 - p)^gamma (r - p) on the centred base; gamma 0 is the base.

    `gamma` 0.5 and 1 are the paper's, 1 as the default is our choice. z has ddof 0.
    """

    gamma: float = 1.0
    base: groups.Base = "standardised"

    spec: ClassVar[Spec] = Spec(
        name="f-grpo",
        title="F-GRPO",
        zero_sum="state",
        reweights=True,
        binary=True,
        role="reweight",
        source="arXiv 2602.06717",
        read="paper",
        notes="The closest published relative of prompt reweighting by risk, without states.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        fit = self.gamma >= 0 and self.base in get_args(groups.Base)
        refuse_unfit(fit, f"f-grpo: gamma is {self.gamma}, base {self.base}; >= 0, and standardised or centred")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        focus_P1 = (1 - groups.pass_rate(batch)) ** self.gamma
        score_PG = focus_P1 * groups.base_score(batch, self.base)
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)
