"""From an estimator to an advantage a token: estimate, normalise if asked, lay out, match the RMS.

Every estimator takes this way, StepRS-GRPO included, so that a comparison changes one factor.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..advantages.layout import lay_out, two_valued
from ..advantages.parts import AdvantageParts, Normalise, normalise
from ..controls import RmsMatch
from ..errors import NormalisationError
from ..types import Advantages
from .base import Estimator, EstimatorBatch, Memory, require_fields, require_rewards
from .groups import centred, equal_rewards


def estimate(
    estimator: Estimator,
    batch: EstimatorBatch,
    memory: Memory,
    *,
    rms_match: RmsMatch | None = None,
    normalisation: Normalise = "none",
) -> tuple[Advantages, Memory]:
    """Advantages of one update's rollouts, and the memory for the next.

    Args:
        estimator: with its settings.
        batch: P groups of G rollouts.
        memory: `estimator.initial_memory()` before the first update.
        rms_match: rescale to the RMS of centred advantages; see `steprs.stepwise_advantages`.
        normalisation: divide by each group's standard deviation, where nothing is weighted yet.

    Returns:
        Advantages float64 [P, G, L] and the memory. Metrics hold `rms_scale`, `cap_hits`, `cap_share`, `binary_exact`,
        `dead_groups` (share of groups with equal rewards), `silent_groups` (share without any advantage), `mass` (mean
        |A| over tokens that count), `rms`, `share_nonzero`, and what the estimator says itself, as `estimator/NAME`.

    Raises:
        ArgumentError: a field that the estimator needs is missing, named with what fills it; groups too small for its
            settings; graded rewards for an estimator of rewards 0 and 1.
        RewardError: a reward of a valid rollout is NaN or infinite. What a masked rollout holds is never looked at.
        NormalisationError: the advantage is weighted already, or groups of equal rewards have one.

    >>> from steprs.estimators import get_estimator
    >>> from steprs.testing.estimators import example_batch
    >>> made, _ = estimate(get_estimator("centred"), example_batch([[1, 0, 0, 0]], length=1), {})
    >>> made.values_PGL.flatten().tolist()
    [0.75, -0.25, -0.25, -0.25]
    """
    require_fields(estimator, batch)
    batch = batch.cleaned()
    require_rewards(estimator, batch)
    if normalisation != "none" and estimator.spec.alive:
        raise NormalisationError(
            f"estimator {estimator.spec.name} gives advantages to groups of equal rewards: dividing by their standard "
            "deviation, 0 + 1e-4, would multiply these by 10,000; set advantage.normalise=none"
        )
    made = estimator.estimate(batch, memory)
    parts = normalise(made.parts, batch.rewards_PG, normalisation, valid_PG=batch.valid_PG)
    if parts.unweighted is None:
        parts = dataclasses.replace(parts, unweighted=centred(batch))
    values_PGL, metrics = _laid_out(parts, batch, rms_match)
    counted_PGL = (batch.weights_PGL > 0) & batch.mask_PGL
    tokens = max(1, int(counted_PGL.sum()))
    magnitude_PGL = values_PGL.abs() * counted_PGL
    metrics |= {
        "binary_exact": float(two_valued(batch.rewards_PG.double().flatten(), batch.groups())),
        "dead_groups": float(equal_rewards(batch).double().mean()) if len(values_PGL) else 0.0,
        "silent_groups": float((values_PGL == 0).flatten(1).all(1).double().mean()) if len(values_PGL) else 0.0,
        "mass": float(magnitude_PGL.sum()) / tokens,
        "rms": (float(magnitude_PGL.square().sum()) / tokens) ** 0.5,
        "share_nonzero": float((magnitude_PGL != 0).sum()) / tokens,
        **{f"estimator/{name}": float(value) for name, value in made.info.items()},
    }
    coef_PGL = torch.zeros_like(values_PGL) if parts.risk_coef is None else parts.risk_coef
    return Advantages(values_PGL=values_PGL, risk_coef_PGL=coef_PGL, metrics=metrics), made.memory


def _laid_out(
    parts: AdvantageParts, batch: EstimatorBatch, rms_match: RmsMatch | None
) -> tuple[Tensor, dict[str, float]]:
    state_BL = batch.state_PGL.flatten(0, 1)
    values_BL, metrics = lay_out(
        parts.with_lead(batch.rewards_PG.numel()), batch.groups(),
        state_BL=state_BL, mask_BL=batch.mask_PGL.flatten(0, 1), weights_BL=batch.weights_PGL.flatten(0, 1),
        rms_match=rms_match, rms_states_BL=state_BL, all_reduce=batch.all_reduce, dtype=torch.float64,
    )  # fmt: skip
    return values_BL.view(batch.state_PGL.shape), metrics
