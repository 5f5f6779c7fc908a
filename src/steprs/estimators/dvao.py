"""DVAO: several rewards, each with the weight that its spread in the group gives it."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch

from ..advantages.parts import AdvantageParts
from ..errors import ArgumentError
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class DVAO(Estimator):
    """A = sum_k w_k (r_k - mean r_k) / sum_k w_k std(r_k), over the components k of the reward; std with ddof 0.

    That is sum_k v_k z_k with v_k = w_k std_k / sum_l w_l std_l: a component that hardly varies in the group hardly
    counts. |A| is at most |z| of the summed reward; one component gives z. Weights are those of
    `advantage.components`; equal ones are described as the default.
    """

    spec: ClassVar[Spec] = Spec(
        name="dvao",
        title="DVAO",
        requires=("components_PGK", "component_weights_K"),
        zero_sum="state",
        alive=True,
        shift_invariant=True,
        reweights=True,
        role="reweight",
        source="arXiv 2605.25604",
        read="secondary",
        notes="As described in secondary sources. For any rewards. Looks at the components alone: a group of equal "
        "rewards has advantages as far as its components differ.",
    )

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class.

        Raises:
            ArgumentError: weights that are negative, all 0, or not one for each component.
        """
        assert batch.components_PGK is not None and batch.component_weights_K is not None
        weights_K, kinds = batch.component_weights_K.double(), batch.components_PGK.shape[2]
        if len(weights_K) != kinds or not bool((weights_K >= 0).all() and (weights_K > 0).any()):
            raise ArgumentError(
                f"dvao: component weights are {weights_K.tolist()} for {kinds} components; give one for each, none "
                "negative and not all 0"
            )
        valid_PG1 = batch.valid_PG.unsqueeze(2)
        values_PGK = batch.components_PGK.double().masked_fill(~valid_PG1, 0.0)
        count_P11 = valid_PG1.double().sum(1, keepdim=True).clamp(min=1)
        away_PGK = (values_PGK - values_PGK.sum(1, keepdim=True) / count_P11) * valid_PG1
        std_P1K = (away_PGK.square().sum(1, keepdim=True) / count_P11).sqrt()
        # The tolerance for equal rewards, without which rounding alone could be divided by rounding.
        std_P1K = std_P1K.where(std_P1K > 1e-8 * values_PGK.abs().amax(1, keepdim=True).clamp(min=1), 0.0)
        scale_P1 = (weights_K * std_P1K).sum(2)
        sum_PG = (weights_K * away_PGK).sum(2)
        score_PG = torch.where(scale_P1 > 0, sum_PG / scale_P1.where(scale_P1 > 0, 1.0), 0.0)
        return Estimate(parts=AdvantageParts(sequence=score_PG, weighted=True), memory=memory)
