"""Step-level advantage selection: what a rollout was least like its reward in has no advantage."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, get_args

import torch

from ..advantages.parts import AdvantageParts
from ..errors import ArgumentError, unknown_name
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit
from .states import highest, unit_means

Unit = Literal["state", "block"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepAdvantageSelection(Estimator):
    """A = z, but 0 on the ceil(ratio n) of a rollout's n units that its confidence speaks against.

    A unit's confidence is the mean log-probability of its tokens at reveal. A rollout above its group's mean loses its
    least confident units, one below it the most confident; of equal ones the earlier go first. `ratio` .3 is the
    paper's. `base` "standardised" is GRPO's z (ddof 1, + 1e-4), "centred" is r - p.

    `unit` says what a step of the paper, a paragraph of text, is here: the tokens of one denoising state, or a decoding
    block. Where the most confident positions are revealed first, confidence follows the state's index and the mask is
    close to a schedule over denoising; blocks are nearer to paragraphs. A rollout of one unit has no advantage at all.
    """

    ratio: float = 0.3
    unit: Unit = "state"
    base: Literal["standardised", "centred"] = "standardised"

    spec: ClassVar[Spec] = Spec(
        name="sas",
        title="SAS, step-level advantage selection",
        granularity="token",
        zero_sum="none",
        shift_invariant=True,
        reweights=True,
        role="mask",
        source="arXiv 2604.24003",
        read="code",
        fidelity="ported",
        notes="Paragraphs become denoising states or blocks; text segments are not offered, since estimators see no "
        "token ids. The released code counts ceil(n + 1 * ratio), by precedence, which masks every step of right "
        "rollouts and none of wrong ones; this is the paper's ceil(ratio * n).",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(
            0 <= self.ratio < 1,
            f"ratio is {self.ratio}; give a share of a rollout's units from 0 up to, but not including, 1, which would "
            "leave no advantage at all",
        )
        for name, value, allowed in (("unit", self.unit, get_args(Unit)), ("base", self.base, BASES)):
            if value not in allowed:
                raise ArgumentError(unknown_name(name, value, allowed))
        if self.base == "centred":
            self.declare(reweights=False)
        if self.ratio == 0:
            self.declare(granularity="sequence", zero_sum="state")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        standardised = self.base == "standardised"
        score_PG = groups.standard_score(batch, ddof=1, eps=1e-4) if standardised else groups.centred(batch)
        unit_PGL = batch.state_PGL if self.unit == "state" else batch.block_PGL
        confidence_PGU, present_PGU = unit_means(batch.logprobs_PGL, unit_PGL, batch.mask_PGL)
        # Without the hair, .7 * 10 = 7.000000000000001 would mask eight.
        count_PG1 = (self.ratio * present_PGU.sum(2, keepdim=True) - 1e-9).ceil()
        against_PGU = torch.where(score_PG.unsqueeze(2) > 0, -confidence_PGU, confidence_PGU)
        dropped_PGU = highest(against_PGU, present_PGU, count_PG1)
        keep_PGL = ~dropped_PGU.gather(2, unit_PGL.clamp(min=0))
        parts = AdvantageParts(sequence=score_PG, keep=keep_PGL, weighted=standardised)
        return Estimate(parts=parts, memory=memory)


BASES = ("standardised", "centred")
