"""What each state added: advantages from rewards of greedy completions, r_t, and their gains g_t = r_{t+1} - r_t."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ..advantages.parts import AdvantageParts
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit, zeros_like_groups
from .states import READ_OFF, VERIFIED, Norm, check_norm, discounted_to_go, gains, highest, normalised, present
from .states import state_rewards as rewards_of_states

_COMMON: dict[str, Any] = {
    "requires": ("state_rewards_PGS",),
    "granularity": "state",
    "alive": True,
    "shift_invariant": True,
    "reweights": True,
    "role": "objective",
    "extra_forwards": READ_OFF,
    "verifier_calls": VERIFIED,
}


def of_states(batch: EstimatorBatch, values_PGS: Tensor, memory: Memory, *, weighted: bool) -> Estimate:
    """An advantage that is a number a state and nothing else."""
    parts = AdvantageParts(sequence=zeros_like_groups(batch), state_add=values_PGS, weighted=weighted)
    return Estimate(parts=parts, memory=memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gain(Estimator):
    """A_t = (G_t - mean) / (std + 1e-4), with the gain to go G_t = sum_{k >= t} gamma^(k - t) g_k.

    gamma 0 is the gain itself, as in Stepwise-Flow-GRPO; gamma 1 is R - r_t, the term of `egspo-sa`. `norm` says what
    mean and standard deviation (ddof 1) are over: "joint", all states of all rollouts of a group, Stepwise-Flow-GRPO's;
    "state", the rollouts at each state; "none", no normalisation, and then no baseline either. Gains follow another
    objective than the final reward unless gamma is 1. ddof and 1e-4 are ours.
    """

    gamma: float = 0.0
    norm: Norm = "joint"

    spec: ClassVar[Spec] = Spec(
        name="gain",
        title="reward gains (Stepwise-Flow-GRPO)",
        zero_sum="joint",
        source="arXiv 2603.28718",
        read="secondary",
        fidelity="ported",
        notes="Made for image diffusion with a few solver steps to a clean estimate; here the greedy completion. "
        "TurningPoint-GRPO's exception at sign flips is not part of it.",
        **_COMMON,
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(0 <= self.gamma <= 1, f"gamma is {self.gamma}; give a discount from 0 to 1")
        check_norm(self.norm)
        self.declare(zero_sum=self.norm, reweights=self.norm != "none")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        to_go_PGS = discounted_to_go(gains(batch), self.gamma)
        values_PGS = normalised(to_go_PGS, present(batch, to_go_PGS.shape[2]), self.norm)
        return of_states(batch, values_PGS, memory, weighted=self.norm != "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MDPO(Estimator):
    """A_t = z of g_t + 1 + mean_{s > t + 1} r_s over the group's rollouts at state t, in the `states` largest alone.

    The mean runs over what comes after the state that t leads to; the last state takes R in its place. z has ddof 1 and
    1e-4 beside the standard deviation. `states` keeps those of the largest sum of |A| over the group (8 in a shipped
    configuration, 16 in the demo; None keeps all).
    """

    states: int | None = 8

    spec: ClassVar[Spec] = Spec(
        name="mdpo",
        title="MDPO",
        zero_sum="state",
        source="arXiv 2508.13148",
        read="code",
        fidelity="ported",
        notes="The authors' step t is the completion sampled in state t, whose reward is their r_t; here it is the "
        "state that t leads to, completed greedily. Their 1 cancels. Their grouping fits one prompt a gather, and "
        "their choice of states is one for all of a device's rollouts; here both are the group's own.",
        **_COMMON,
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(self.states is None or self.states >= 1, f"states is {self.states}; give 1 or more, or none")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        reward_PGT = rewards_of_states(batch)
        states = reward_PGT.shape[2] - 1
        index_T = torch.arange(states + 1, device=reward_PGT.device)
        behind_PGT = index_T > batch.num_states_PG.unsqueeze(2)
        # Entry s of the padded sums is sum_{k >= s} r_k; s = t + 2 starts behind the state that t leads to.
        ahead_PGS = functional.pad(reward_PGT.masked_fill(behind_PGT, 0).flip(2).cumsum(2).flip(2), (0, 1))[..., 2:]
        count_PGS = batch.num_states_PG.unsqueeze(2) - 1 - index_T[:-1]
        mean_PGS = torch.where(count_PGS > 0, ahead_PGS / count_PGS.clamp(min=1), reward_PGT[..., -1:])
        there_PGS = present(batch, states)
        values_PGS = normalised(gains(batch) + 1 + mean_PGS, there_PGS, "state")
        if self.states is not None:
            size_P1S = values_PGS.abs().sum(1, keepdim=True)
            values_PGS = values_PGS * highest(size_P1S, there_PGS.any(1, keepdim=True), self.states)
        return of_states(batch, values_PGS, memory, weighted=True)
