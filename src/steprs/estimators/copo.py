"""COPO: prompts compared with each other where their rollouts agree, rollouts where they do not."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit

_EPS = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class COPO(Estimator):
    """A = w z + (1 - w) (R - mean R) / std R with w = sigmoid(gamma (H - rho)).

    R is a group's mean reward, compared over the groups of the whole batch; H is the entropy in bits of the group's
    final answers. Where answers agree (H below rho) the group is pushed as a whole, groups of equal rewards too. Both
    standard deviations have ddof 1 and + 1e-6, as in the release. `gamma` 20 and `rho` 1.5 are the paper's as described
    in secondary sources; scripts of the release have rho 0.5.
    """

    gamma: float = 20.0
    rho: float = 1.5

    spec: ClassVar[Spec] = Spec(
        name="copo",
        title="COPO",
        requires=("answer_ids_PG",),
        coupling="batch",
        zero_sum="none",
        alive=True,
        reweights=True,
        role="objective",
        source="arXiv 2508.04138, github.com/hijih/copo-code",
        read="code",
        fidelity="variant",
        notes="The release mixes two clipped losses, here the advantages are mixed, which is the same until a ratio is "
        "clipped. Its option that lowers R by the entropy is off in its scripts and not here. Unparsed rollouts "
        "count as one answer. For any rewards.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(self.gamma >= 0, f"copo: gamma is {self.gamma}; >= 0 is needed")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        local_P1 = torch.sigmoid(self.gamma * (answer_entropy(batch) - self.rho))
        score_PG = local_P1 * groups.standard_score(batch, ddof=1, eps=_EPS)
        score_PG = (score_PG + (1 - local_P1) * score_of_prompts(batch)) * batch.valid_PG
        share, count = batch.total(torch.stack([local_P1.sum(), local_P1.new_tensor(float(len(local_P1)))]))
        return Estimate(
            parts=AdvantageParts(sequence=score_PG, weighted=True),
            memory=memory,
            info={"local_weight": float(share / count.clamp(min=1))},
        )


def answer_entropy(batch: EstimatorBatch) -> Tensor:
    """Entropy in bits of the final answers in each group, float64 [P, 1]."""
    assert batch.answer_ids_PG is not None
    ids_PG, valid_PG = batch.answer_ids_PG, batch.valid_PG
    same_PGG = (ids_PG.unsqueeze(2) == ids_PG.unsqueeze(1)) & valid_PG.unsqueeze(1)
    # Each rollout's answer has the share of rollouts that agree with it; their mean log is the entropy.
    share_PG = same_PGG.double().sum(2) / groups.size(batch).clamp(min=1)
    bits_PG = -torch.log2(share_PG.where(valid_PG, 1.0))
    return groups.mean_over_group(bits_PG, valid_PG)


def score_of_prompts(batch: EstimatorBatch) -> Tensor:
    """(R - mean R) / (std R + 1e-6) over the groups of all processes, float64 [P, 1]; 0 where all are equal."""
    rate_P1 = groups.pass_rate(batch)
    there_P1 = (groups.size(batch) > 0).double()
    total, count = batch.total(torch.stack([(rate_P1 * there_P1).sum(), there_P1.sum()]))
    away_P1 = (rate_P1 - total / count.clamp(min=1)) * there_P1
    variance = batch.total(away_P1.square().sum()) / (count - 1).clamp(min=1)
    return torch.where(variance > 1e-16, away_P1 / (variance.sqrt() + _EPS), 0.0)
