"""StepRS-GRPO, its matched controls and constant risk-sensitive GRPO, as estimators like the others."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from ..advantages.composition import stepwise_parts
from ..advantages.scores import Base, Options
from ..controls import Control
from ..risk import Baseline, check_rewards
from ..schedules import AbstractSchedule, ConstantSchedule
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRSGRPO(Estimator):
    """A = c(p, b(tau)) (r - p): the settings are those of `steprs.stepwise_advantages`, which gives the same bits."""

    schedule: AbstractSchedule = dataclasses.field(default_factory=lambda: ConstantSchedule(0.0))
    control: Control = "full"
    base: Base = "centred"
    baseline: Baseline = "group"
    cap: float | None = None
    std_ddof: Literal[0, 1] = 1
    reference_pass_rate: float | None = None

    spec: ClassVar[Spec] = Spec(
        name="steprs-grpo",
        title="StepRS-GRPO",
        granularity="token",
        reweights=True,
        role="reweight",
        zero_sum="state",
        shift_invariant=True,
        source="arXiv 2610.00661",
        read="paper",
        notes="Settings under `risk`. Constant schedules are risk-sensitive GRPO. Ends, direction and calibration are "
        "this project's, the paper fixes none of them.",
    )

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        rewards_PG = batch.rewards_PG.masked_fill(~batch.valid_PG, 0)
        check_rewards(rewards_PG)
        options = Options(
            control=self.control, rms_match=None, base=self.base, baseline=self.baseline, cap=self.cap,
            std_ddof=self.std_ddof, reference_pass_rate=self.reference_pass_rate, seed=batch.seed,
            all_reduce=batch.all_reduce,
        )  # fmt: skip
        parts, info = stepwise_parts(
            rewards_PG.flatten(), batch.groups(), batch.progress_PGL.flatten(0, 1), self.schedule, options,
            mask_BL=batch.mask_PGL.flatten(0, 1),
            weights_BL=batch.weights_PGL.flatten(0, 1),
            state_index_BL=batch.state_PGL.flatten(0, 1),
            row_keys_B=None if batch.row_keys_PG is None else batch.row_keys_PG.flatten(),
        )  # fmt: skip
        parts = dataclasses.replace(parts.with_lead(*rewards_PG.shape), weighted=True)
        return Estimate(parts=parts, memory=memory, info=info)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantRisk(Estimator):
    """A = c(p, b) (r - p) at one absolute coefficient: risk-sensitive GRPO without states."""

    risk_coef: float = 2.0

    spec: ClassVar[Spec] = Spec(
        name="rs-grpo",
        title="constant RS-GRPO",
        zero_sum="state",
        shift_invariant=True,
        reweights=True,
        role="reweight",
        source="arXiv 2509.24261",
        read="secondary",
        notes="`risk_coef` is absolute; a calibrated one is StepRS-GRPO with risk.schedule.kind=constant.",
    )

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        return StepRSGRPO(schedule=ConstantSchedule(self.risk_coef)).estimate(batch, memory)
