"""CAPO: imitation first, discrimination later."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, get_args

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit


@dataclasses.dataclass(frozen=True, kw_only=True)
class CAPO(Estimator):
    """A = max(A_base, 0) in the first `share` of all updates, A_base afterwards; a hard switch.

    While only positive advantages are kept, what is better than its group's mean becomes more likely and nothing less
    likely. 0.2 to 0.3 is described as the best share; 0.25 and the base are our choice. z has ddof 0.
    """

    share: float = 0.25
    base: groups.Base = "standardised"

    spec: ClassVar[Spec] = Spec(
        name="capo",
        title="CAPO",
        zero_sum="none",
        shift_invariant=True,
        reweights=True,
        role="mask",
        source="arXiv 2512.02580",
        read="secondary",
        notes="As described in secondary sources. For any rewards. Sums to 0 once the first phase is over.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        fit = 0 <= self.share <= 1 and self.base in get_args(groups.Base)
        refuse_unfit(fit, f"capo: share is {self.share}, base {self.base}; in [0, 1], and standardised or centred")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        imitates = batch.update <= self.share * batch.updates
        score_PG = groups.base_score(batch, self.base)
        parts = AdvantageParts(sequence=score_PG.clamp(min=0) if imitates else score_PG, weighted=True)
        return Estimate(parts=parts, memory=memory, info={"imitates": float(imitates)})
