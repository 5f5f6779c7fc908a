"""HA-DW: prompts weighed by how hard they are next to a running belief about the policy."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from ..advantages.parts import AdvantageParts
from . import groups
from .base import Estimate, Estimator, EstimatorBatch, Memory, Spec, refuse_unfit, zeros_like_groups


@dataclasses.dataclass(frozen=True, kw_only=True)
class HADW(Estimator):
    """A = lambda exp(D |d|) z with d = p - C and D = -sign(z) sign(d), where C is the belief before the update.

    Prompts harder than believed weigh more where right and less where wrong, easier ones the other way round. After the
    update, with y the accuracy of the whole batch,

    - `belief="soft"`: C <- (1 - h) C + h y with h = min(1, eta std(last `window` beliefs)), ddof 0;
    - `belief="hard"`: C <- mean of the last `window` accuracies.

    `scale` is lambda, 1.3 in the paper (1.3 to 1.5 are good). The paper states neither eta nor the window: 5 and 10 are
    ours. So are the bound of h and the beginning: the first update believes its own accuracy, and until the window is
    full the belief is the mean of the accuracies so far. A belief that stood still throughout a window has h = 0 and
    stands still for ever: take "hard" where accuracy can stay at 0. An update whose rollouts are all masked teaches
    nothing.
    """

    scale: float = 1.3
    base: groups.Base = "standardised"
    belief: Literal["soft", "hard"] = "soft"
    eta: float = 5.0
    window: int = 10

    spec: ClassVar[Spec] = Spec(
        name="ha-dw",
        title="HA-DW",
        coupling="history",
        zero_sum="none",
        reweights=True,
        binary=True,
        role="reweight",
        source="arXiv 2601.08521",
        read="paper",
        notes="`window` is the paper's m for soft and h for hard beliefs. eta, the window and the beginning are ours.",
    )

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        refuse_unfit(
            self.scale > 0 and self.eta >= 0 and self.window >= 2 and self.window == int(self.window),
            f"ha-dw: scale is {self.scale}, eta {self.eta}, window {self.window}; > 0, >= 0 and a whole number >= 2",
        )
        fit = self.base in get_args(groups.Base) and self.belief in ("soft", "hard")
        refuse_unfit(fit, f"ha-dw: base is {self.base}, belief {self.belief}; standardised or centred, soft or hard")

    def initial_memory(self) -> Memory:
        """No belief and an empty window."""
        return {"belief": torch.zeros(0, dtype=torch.float64), "window": torch.zeros(0, dtype=torch.float64)}

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """See the class."""
        accuracy, count = groups.mean_and_size(batch)
        if count == 0:
            # Nothing was seen, so nothing is learnt: a mean of nothing is no accuracy of 0.
            return Estimate(parts=AdvantageParts(sequence=zeros_like_groups(batch), weighted=True), memory=memory)
        belief = memory["belief"].to(accuracy.device) if memory["belief"].numel() else accuracy.reshape(1)
        base_PG, gap_P1 = groups.base_score(batch, self.base), groups.pass_rate(batch) - belief
        score_PG = self.scale * torch.exp(-base_PG.sign() * gap_P1) * base_PG
        after, rate = self._learned(memory["window"].to(accuracy.device), belief, accuracy)
        return Estimate(
            parts=AdvantageParts(sequence=score_PG, weighted=True),
            memory=after,
            info={"batch_accuracy": float(accuracy), "belief": float(belief), "belief_rate": rate},
        )

    def _learned(self, seen: Tensor, belief: Tensor, accuracy: Tensor) -> tuple[Memory, float]:
        """The memory after a batch and the rate h; `seen` holds beliefs, or accuracies for hard beliefs."""
        if self.belief == "soft" and len(seen) == self.window:
            rate = min(1.0, self.eta * float(seen.std(correction=0)))
        else:
            rate = 1 / min(len(seen) + 1, self.window)
        if self.belief == "hard":
            seen = torch.cat([seen, accuracy.reshape(1)])[-self.window :]
            return {"belief": seen.mean().reshape(1), "window": seen}, rate
        belief = (1 - rate) * belief + rate * accuracy
        return {"belief": belief, "window": torch.cat([seen, belief])[-self.window :]}, rate
