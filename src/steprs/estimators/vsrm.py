"""VSRM: changes of the reward on the way, handed back to the states before them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit
from .gain import of_states
from .states import READ_OFF, VERIFIED, Norm, check_norm, discounted_to_go, gains, normalised, present

_NONE = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class VSRM(Estimator):
    """A_t = z of R + sum_{k >= t} d_k, with d_t = g_t, or where that is 0, decay^m of the next gain, m states on.

    The next gain other than 0 counts if it is within `lookahead` states; so each change of the reward is paid to the
    state that made it and, ever less, to up to `lookahead` idle ones before it. 4 and .7 are the authors'. z as `norm`
    says, see `gain`; over all states of a group's rollouts together by default, where the authors whiten over a batch.
    """

    decay: float = 0.7
    lookahead: int = 4
    norm: Norm = "joint"

    spec: ClassVar[Spec] = Spec(
        name="vsrm",
        title="VSRM, verifiable stepwise rewards",
        requires=("state_rewards_PGS",),
        granularity="state",
        zero_sum="joint",
        alive=True,
        shift_invariant=True,
        reweights=True,
        role="objective",
        extra_forwards=READ_OFF,
        verifier_calls=VERIFIED,
        source="arXiv 2508.10293",
        read="code",
        fidelity="ported",
        notes="The authors stop a text at split words, force an answer five times and train with PPO or Reinforce++ on "
        "step rewards and the outcome at the last token; here a state's greedy completion is the forced answer, once, "
        "and the return to go is compared within the group.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(0 <= self.decay <= 1, f"decay is {self.decay}; give 0 to 1")
        refuse_unfit(self.lookahead >= 0, f"lookahead is {self.lookahead}; give a number of states, 0 or more")
        check_norm(self.norm)
        plain = self.norm == "none"
        self.declare(zero_sum=self.norm, reweights=not plain, shift_invariant=not plain)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        step_PGS = spread_back(gains(batch), self.decay, self.lookahead)
        return_PGS = batch.rewards_PG.double().unsqueeze(2) + discounted_to_go(step_PGS, 1.0)
        values_PGS = normalised(return_PGS, present(batch, step_PGS.shape[2]), self.norm)
        return of_states(batch, values_PGS, memory, weighted=self.norm != "none")


def spread_back(gain_PGS: Tensor, decay: float, lookahead: int) -> Tensor:
    """Each gain other than 0 itself, and in the states before it where nothing happened, times decay^distance.

    >>> spread_back(torch.tensor([[[0.0, 0.0, 1.0, 0.0, -1.0]]]).double(), 0.5, 4).tolist()
    [[[0.25, 0.5, 1.0, -0.5, -1.0]]]
    """
    states, found_PGS = gain_PGS.shape[2], torch.zeros_like(gain_PGS)
    for distance in range(min(lookahead, states - 1), -1, -1):
        next_PGS = functional.pad(gain_PGS, (0, distance))[..., distance:]
        found_PGS = torch.where(next_PGS.abs() >= _NONE, next_PGS * decay**distance, found_PGS)
    return found_PGS
