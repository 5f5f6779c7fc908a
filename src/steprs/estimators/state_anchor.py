"""State anchors: a rollout compared with those of its group that came through the very same state."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit
from .states import discounted_to_go, present, sums_of_equals


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateAnchor(Estimator):
    """A_t = episode (r - p) + omega A^S_t, with A^S_t = sum_{k >= t} (gamma lambda)^(k - t) delta_k.

    V(s) is the mean discounted return of the group's rollouts that came through the canvas s, and

        delta_t = gamma V(s_{t+1}) - V(s_t),    in the last state r - V(s_t)

    `gae_lambda` 1 is GiGPO: A^S_t = gamma^(S - 1 - t) r - V(s_t), the return centred over all visits of one state.
    `episode` 0 with `gae_lambda` below 1 is GAGPO; at 0, delta_t is 0 as soon as a rollout has left what it shares with
    others, so that credit falls early by construction. On a balanced tree that is the edge advantage of d-TreeRPO.
    `leave_one_out` takes a rollout out of its own V, except where it is alone.

    omega 1 is GiGPO's. gamma 1 and the default lambda are ours: a rollout's reward does not depend on its steps.
    Logs `shared_fraction`, the share of states behind the first that more than one rollout came through.
    """

    episode: float = 1.0
    omega: float = 1.0
    gae_lambda: float = 1.0
    gamma: float = 1.0
    leave_one_out: bool = False

    spec: ClassVar[Spec] = Spec(
        name="state-anchor",
        title="state anchors (GiGPO, GAGPO)",
        requires=("state_keys_PGS",),
        granularity="state",
        zero_sum="state",
        shift_invariant=True,
        role="credit",
        source="arXiv 2505.10978 (GiGPO), arXiv 2605.13217 (GAGPO)",
        read="secondary",
        fidelity="ported",
        notes="A state is a partly revealed canvas, which rollouts share at first and rarely later on, but for short "
        "structured answers. Neither GiGPO's division by the group's standard deviation nor GAGPO's normalisation and "
        "ratios are part of it. Sums over a state vanish where all rollouts reach it in the same step.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(0 <= self.gae_lambda <= 1, f"gae_lambda is {self.gae_lambda}; give 0 to 1")
        refuse_unfit(0 < self.gamma <= 1, f"gamma is {self.gamma}; give a discount above 0, at most 1")
        refuse_unfit(bool(self.episode or self.omega), "episode and omega are both 0, which leaves no advantage at all")
        if self.gamma < 1 and self.omega:
            # What a shift of rewards adds is discounted differently from one state to the next; so are equal rewards of
            # rollouts that came through one state and took different numbers of states after it.
            self.declare(shift_invariant=False, alive=True)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        assert batch.state_keys_PGS is not None
        keys_PGS = batch.state_keys_PGS[..., :-1]
        there_PGS = present(batch, keys_PGS.shape[2])
        value_PGS, visits_PGS = self._values(batch, keys_PGS, there_PGS)
        rewards_PG1 = batch.rewards_PG.double().unsqueeze(2)
        last_PGS = torch.arange(keys_PGS.shape[2], device=keys_PGS.device) == batch.num_states_PG.unsqueeze(2) - 1
        next_PGS = self.gamma * torch.nn.functional.pad(value_PGS, (0, 1))[..., 1:]
        delta_PGS = torch.where(last_PGS, rewards_PG1, next_PGS) - value_PGS
        # Powers of gamma are rounded, and what is left of a difference of equal returns is no credit.
        rounding_P11 = 1e-12 * rewards_PG1.abs().amax(1, keepdim=True).clamp(min=1)
        delta_PGS = delta_PGS * (there_PGS & (delta_PGS.abs() > rounding_P11))
        parts = AdvantageParts(
            sequence=self.episode * groups.centred(batch),
            state_add=self.omega * discounted_to_go(delta_PGS, self.gamma * self.gae_lambda),
        )
        later_PGS = there_PGS[..., 1:]
        shared = int(((visits_PGS[..., 1:] > 1) & later_PGS).sum()) / max(1, int(later_PGS.sum()))
        return Estimate(parts=parts, memory=memory, info={"shared_fraction": shared})

    def _values(self, batch: EstimatorBatch, keys_PGS: Tensor, there_PGS: Tensor) -> tuple[Tensor, Tensor]:
        """V of each rollout's states and how many rollouts came through them, float64 [P, G, S]."""
        index_S = torch.arange(keys_PGS.shape[2], device=keys_PGS.device)
        left_PGS = (batch.num_states_PG.unsqueeze(2) - 1 - index_S).clamp(min=0)
        return_PGS = batch.rewards_PG.double().unsqueeze(2) * self.gamma ** left_PGS.double()
        prompt_P11 = torch.arange(len(keys_PGS), device=keys_PGS.device)[:, None, None]
        sum_PGS, visits_PGS = sums_of_equals(return_PGS, (keys_PGS, prompt_P11), there_PGS)
        if self.leave_one_out:
            others_PGS = (sum_PGS - return_PGS) / (visits_PGS - 1).clamp(min=1)
            return torch.where(visits_PGS > 1, others_PGS, return_PGS * there_PGS), visits_PGS
        return sum_PGS / visits_PGS.clamp(min=1), visits_PGS
