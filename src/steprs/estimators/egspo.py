"""EGSPO: the states of highest entropy alone, and a baseline from one-step completions."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit
from .states import READ_OFF, VERIFIED, check_states, of_high_entropy, present, state_rewards

SOURCE = "arXiv 2603.12554"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntropySelection(Estimator):
    """A = r - p in each rollout's `states` states of highest entropy, 0 in the others.

    A state's entropy is the mean over the tokens it revealed, of the distribution they were drawn from. 8 states are
    the authors' number; a number below 1 is a share. Their loss averages over the states kept; here the loss keeps its
    own denominator, so that fewer states are a smaller update unless the RMS is matched.
    """

    states: float = 8

    spec: ClassVar[Spec] = Spec(
        name="egspo",
        title="EGSPO, entropy-guided step selection",
        granularity="state",
        zero_sum="none",
        shift_invariant=True,
        role="mask",
        source=SOURCE,
        read="code",
        notes="Rollouts keep different states, so advantages at one state do not sum to 0. The loss's average over "
        "kept states is not part of it.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        check_states(self.states)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        keep_PGL = of_high_entropy(batch, self.states)
        return Estimate(parts=AdvantageParts(sequence=groups.centred(batch), keep=keep_PGL), memory=memory)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepwiseAdvantage(Estimator):
    """A_t = R_t - mean of the group's R_t, with R_t = (r + coefficient (r - r_t)) / (1 + coefficient).

    r_t is the reward of the greedy completion of state t, known before the state's tokens are drawn: a baseline that
    leaves the gradient unbiased up to the group's mean. A rollout that has ended stays in the mean with its own reward,
    so that coefficient 0 is centred GRPO. `coefficient` .5 is that of the authors' scripts (their code's default is 0);
    `divide` is on in both. `states` keeps those of highest entropy alone, see `egspo`; None keeps all.
    """

    coefficient: float = 0.5
    divide: bool = True
    states: float | None = None

    spec: ClassVar[Spec] = Spec(
        name="egspo-sa",
        title="EGSPO-SA, stepwise advantages",
        requires=("state_rewards_PGS",),
        granularity="state",
        zero_sum="state",
        alive=True,
        shift_invariant=True,
        role="baseline",
        extra_forwards=READ_OFF,
        verifier_calls=VERIFIED,
        source=SOURCE,
        read="code",
        notes="With `states` it is also the nearest to PAPO, whose own combination of the two is not published.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(self.coefficient >= 0, f"coefficient is {self.coefficient}; give 0 or more")
        if self.states is not None:
            check_states(self.states)
            self.declare(zero_sum="none")
        if self.coefficient == 0:
            self.declare(alive=False)

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        value_PGS = state_rewards(batch)[..., :-1]
        valid_PG1 = batch.valid_PG.double().unsqueeze(2)
        mean_P1S = (value_PGS * valid_PG1).sum(1, keepdim=True) / valid_PG1.sum(1, keepdim=True).clamp(min=1)
        centred_PGS = (value_PGS - mean_P1S) * present(batch, value_PGS.shape[2])
        scale = 1.0 if self.divide else 1.0 + self.coefficient
        parts = AdvantageParts(
            sequence=scale * groups.centred(batch),
            state_add=-scale * self.coefficient / (1.0 + self.coefficient) * centred_PGS,
            keep=None if self.states is None else of_high_entropy(batch, self.states),
        )
        return Estimate(parts=parts, memory=memory)
