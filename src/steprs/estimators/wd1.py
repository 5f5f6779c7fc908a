"""wd1: exponential weights of both signs, in each group or over the whole batch."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch

from ..advantages.parts import AdvantageParts
from ..errors import ArgumentError
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit

_COLDEST = 1e-6


def _check_temperature(estimator: WD1 | WD1Batch) -> None:
    # Far colder, (r - p) / T overflows; from here on the softmax is the best rollout alone anyway.
    refuse_unfit(
        estimator.temperature >= _COLDEST,
        f"{estimator.spec.name}: temperature is {estimator.temperature}; {_COLDEST:g} or more is needed",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WD1(Estimator):
    """A = n (softmax((r - p) / T) - softmax(-(r - p) / T)) over the n rollouts of a group; any rewards.

    Equal to (RS(1/T) + RS(-1/T)) / T with RS the risk-sensitive advantage: exponential weights without net risk
    seeking, symmetric in p. `temperature` 1 is the release's.
    """

    temperature: float = 1.0

    spec: ClassVar[Spec] = Spec(
        name="wd1",
        title="wd1, softmax in the group",
        zero_sum="state",
        shift_invariant=True,
        reweights=True,
        role="reweight",
        source="arXiv 2507.08838",
        read="code",
        fidelity="variant",
        notes="The release takes the softmax over the batch of one device, so its advantages depend on the number of "
        "devices; that is not reproduced, see wd1-batch. Its loss has no ratio and no clipping.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        _check_temperature(self)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        tilt_PG = groups.centred(batch) / self.temperature
        up_PG, down_PG = (
            (sign * tilt_PG).masked_fill(~batch.valid_PG, -torch.inf).softmax(dim=1) for sign in (1.0, -1.0)
        )
        score_PG = torch.where(batch.valid_PG, groups.size(batch) * (up_PG - down_PG), 0.0)
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WD1Batch(Estimator):
    """A = N (softmax((r - p) / T) - softmax(-(r - p) / T)), both over the N rollouts of the batch, on all processes.

    r - p is taken in each group. Groups of equal rewards have an advantage too, the same for all of them, negative
    while most prompts are hard. `temperature` 1 is the release's.
    """

    temperature: float = 1.0

    spec: ClassVar[Spec] = Spec(
        name="wd1-batch",
        title="wd1, softmax over the batch",
        coupling="batch",
        zero_sum="none",
        alive=True,
        reweights=True,
        role="reweight",
        source="arXiv 2507.08838",
        read="code",
        fidelity="variant",
        notes="For any rewards. The release's softmax over the batch of one device, taken over all devices, so that it "
        "does not depend on their number. Sums to 0 over the batch. The release's loss has no ratio and no clipping.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        _check_temperature(self)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class.

        Raises:
            ArgumentError: the exponentials overflow.
        """
        tilt_PG = groups.centred(batch) / self.temperature
        up_PG, down_PG = torch.exp(tilt_PG) * batch.valid_PG, torch.exp(-tilt_PG) * batch.valid_PG
        up, down, count = batch.total(torch.stack([up_PG.sum(), down_PG.sum(), groups.size(batch).sum()]))
        # Judged on the sums of all processes, so that all of them stop together.
        if not bool(torch.isfinite(up + down)):
            raise ArgumentError(
                f"wd1-batch: exp((r - p) / {self.temperature}) overflows; raise temperature, or take wd1, whose "
                "softmax in the group has no such limit"
            )
        score_PG = count * (up_PG / up.where(count > 0, 1.0) - down_PG / down.where(count > 0, 1.0))
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)
