"""From an advantage's parts to one number a token: laid out, bounded, matched in RMS, masked, cast."""

from __future__ import annotations

import torch
from torch import Tensor

from ..controls import AllReduce, Groups, RmsMatch, rms_factors
from ..errors import ArgumentError
from .parts import AdvantageParts, expand_counting


def lay_out(
    parts: AdvantageParts,
    groups: Groups,
    *,
    state_BL: Tensor,
    mask_BL: Tensor,
    weights_BL: Tensor | None,
    rms_match: RmsMatch | None,
    rms_states_BL: Tensor,
    all_reduce: AllReduce | None,
    dtype: torch.dtype,
) -> tuple[Tensor, dict[str, float]]:
    """Values [B, L] on the device of `groups`, and `rms_scale` (mean factor), `cap_hits`, `cap_share` (tokens).

    Args:
        parts: in flat form, on that device, as the tensors below.
        groups: which rows belong together.
        state_BL: int64, the state that revealed each token.
        mask_BL: bool, tokens that count.
        weights_BL: loss weights for RMS matching; None is token mean.
        rms_match: see `steprs.stepwise_advantages`.
        rms_states_BL: what is one state to RMS matching: tokens of equal value.
        all_reduce: sums a float64 tensor over processes.
        dtype: of the values; matching is done in float64.
    """
    values_BL, hits = expand_counting(parts, state_BL, mask_BL, dtype=torch.float64 if rms_match else dtype)
    factors = torch.ones(1)
    if rms_match is not None:
        assert parts.unweighted is not None
        factors = rms_factors(
            values_BL, parts.unweighted.unsqueeze(1), loss_weights(weights_BL, mask_BL), rms_match,
            groups=groups, states_BL=rms_states_BL.masked_fill(~mask_BL, 0), all_reduce=all_reduce,
        )  # fmt: skip
        values_BL = values_BL.mul_(factors).to(dtype)
    metrics = {
        "rms_scale": float(factors.mean()),
        "cap_hits": float(hits),
        "cap_share": hits / max(1, int(mask_BL.sum())) if hits else 0.0,
    }
    return values_BL, metrics


def loss_weights(weights_BL: Tensor | None, mask_BL: Tensor) -> Tensor:
    """Loss weights as float64, 0 where not active.

    Raises:
        ArgumentError: one is negative, NaN or infinite.
    """
    if weights_BL is None:
        return mask_BL.double()
    weights_BL = weights_BL.detach().to(mask_BL.device).double().masked_fill(~mask_BL, 0.0)
    if not bool((torch.isfinite(weights_BL) & (weights_BL >= 0)).all()):
        raise ArgumentError("weights hold a value that is negative, NaN or infinite; give the loss weights, all >= 0")
    return weights_BL


def two_valued(rewards_B: Tensor, groups: Groups) -> bool:
    """Whether all rewards that are compared take at most two values."""
    kept = [rewards_B[rows_PG].flatten() for rows_PG in groups.blocks]
    if not kept:
        return True
    rewards_N = torch.cat(kept)
    low, high = torch.aminmax(rewards_N)
    return bool(((rewards_N == low) | (rewards_N == high)).all())
