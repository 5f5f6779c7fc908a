"""Blockwise advantages with a baseline that knows how things stood: the outcome-conditioned baseline."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from ..advantages.parts import AdvantageParts
from ..errors import ArgumentError, unknown_name
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit, zeros_like_groups
from .states import READ_OFF, VERIFIED, present, state_rewards, sums_of_equals

Form = Literal["states", "regions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockwiseAdvantage(Estimator):
    """A = r less the mean reward of the group's rollouts for which things stood the same; no standard deviation.

    `form` "states", a port to denoising with one reward: A_{i,t} = r_i - mean{r_j : r_{j,t} = r_{i,t}}, where r_{j,t}
    is the reward of rollout j's greedy completion of state t, over the rollouts that have a state t.

    `form` "regions", the paper's: text region k has its own reward component c_k and gives it to its own tokens,
    A_{i,k} = c_{i,k} - mean{c_{j,k} : c_{j,k-1} = c_{i,k-1}}; the first region has the whole group for its stratum.

    A rollout that is alone in its stratum has advantage 0. `shrink` n adds n rollouts of the group's mean to every
    stratum (ours; 0 is the paper).
    """

    form: Form = "states"
    shrink: float = 0.0

    spec: ClassVar[Spec] = Spec(
        name="bae",
        title="BAE with outcome-conditioned baseline",
        requires=("state_rewards_PGS",),
        granularity="state",
        zero_sum="state",
        shift_invariant=True,
        role="baseline",
        extra_forwards=READ_OFF,
        verifier_calls=VERIFIED,
        source="arXiv 2602.10231",
        fidelity="variant",
        notes="In the regions' form tokens of a region are revealed in interleaved states, so that the outcome before "
        "it is known to it in block decoding only; the paper's mean over each region's tokens is the loss's business.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        if self.form not in get_args(Form):
            raise ArgumentError(unknown_name("form", self.form, get_args(Form)))
        refuse_unfit(self.shrink >= 0, f"shrink is {self.shrink}; give 0 or more rollouts")
        if self.form == "regions":
            self.declare(
                requires=("components_PGK", "regions_PGL"), granularity="token", zero_sum="group", alive=True,
                fidelity="exact", extra_forwards="none", verifier_calls="none beside the components",
            )  # fmt: skip
        if self.shrink:
            self.declare(zero_sum="none")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        if self.form == "states":
            return Estimate(parts=self._of_states(batch), memory=memory)
        return Estimate(parts=self._of_regions(batch), memory=memory)

    def _of_states(self, batch: EstimatorBatch) -> AdvantageParts:
        outcome_PGS = state_rewards(batch)[..., :-1]
        there_PGS = present(batch, outcome_PGS.shape[2])
        index_S = torch.arange(outcome_PGS.shape[2], device=outcome_PGS.device)
        rewards_PGS = batch.rewards_PG.double().unsqueeze(2).expand_as(outcome_PGS)
        values_PGS = self._less_baseline(rewards_PGS, (outcome_PGS, index_S), there_PGS, batch)
        return AdvantageParts(sequence=zeros_like_groups(batch), state_add=values_PGS)

    def _of_regions(self, batch: EstimatorBatch) -> AdvantageParts:
        assert batch.components_PGK is not None and batch.regions_PGL is not None
        component_PGK = batch.components_PGK.double()
        count = component_PGK.shape[2]
        highest = int(batch.regions_PGL.max()) if batch.regions_PGL.numel() else -1
        refuse_unfit(highest < count, f"a token is in region {highest}, but there are {count} reward components")
        before_PGK = torch.nn.functional.pad(component_PGK, (1, 0))[..., :-1]
        there_PGK = batch.valid_PG.unsqueeze(2).expand_as(component_PGK)
        index_K = torch.arange(count, device=component_PGK.device)
        values_PGK = self._less_baseline(component_PGK, (before_PGK, index_K), there_PGK, batch)
        of_token_PGL = values_PGK.gather(2, batch.regions_PGL.clamp(min=0)) * (batch.regions_PGL >= 0)
        return AdvantageParts(sequence=torch.ones_like(batch.rewards_PG).double(), token_weight=of_token_PGL)

    def _less_baseline(
        self, values_PGX: Tensor, labels: tuple[Tensor, Tensor], there_PGX: Tensor, batch: EstimatorBatch
    ) -> Tensor:
        """Values less the shrunk mean over the entries of the group with the same labels, 0 where not there."""
        prompt_P11 = torch.arange(len(values_PGX), device=values_PGX.device)[:, None, None]
        sum_PGX, count_PGX = sums_of_equals(values_PGX, (*labels, prompt_P11), there_PGX)
        valid_PG1 = batch.valid_PG.double().unsqueeze(2)
        mean_P1X = (values_PGX * valid_PG1).sum(1, keepdim=True) / valid_PG1.sum(1, keepdim=True).clamp(min=1)
        baseline_PGX = (sum_PGX + self.shrink * mean_P1X) / (count_PGX + self.shrink).clamp(min=1)
        return (values_PGX - baseline_PGX) * there_PGX
