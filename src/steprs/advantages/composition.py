"""The parts of a stepwise advantage on rows in any order. Two-valued groups never meet an axis of pairs of members."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ..controls import Groups, matched_constant, mirrored, shuffled_states, shuffled_tokens
from ..errors import ArgumentError
from ..risk import general_advantages, two_valued_scale
from ..schedules import AbstractSchedule, ConstantSchedule
from .layout import loss_weights
from .parts import CHUNK, AdvantageParts
from .scores import Options, Rows


def stepwise_parts(
    rewards_B: Tensor,
    groups: Groups,
    progress_BL: Tensor,
    schedule: AbstractSchedule,
    options: Options,
    *,
    mask_BL: Tensor,
    weights_BL: Tensor | None,
    state_index_BL: Tensor | None,
    row_keys_B: Tensor | None,
) -> tuple[AdvantageParts, dict[str, float]]:
    """The factored form on rows in any order, on the device of `groups`, and what there is to log of it.

    The sequence score is r - p (standardised if asked for), the token weight c(p, b(tau)), and what a control
    multiplies a whole rollout by is a state weight of one value. In groups that are not two-valued A_i(b) does not
    factor: their score is 1 and the token weight is the advantage.
    """
    device = groups.index_B.device
    rewards64_B = rewards_B.detach().to(device).double()
    tau_BL, mask_BL = progress_BL.detach().to(device), mask_BL.to(device).bool()
    rows = Rows.of(rewards64_B, groups, options)
    _check(rows, schedule, options)
    needs_weights = options.control not in ("full", "centred", "shuffle-token")
    weights64_BL = loss_weights(weights_BL, mask_BL) if needs_weights else mask_BL
    schedule = _scheduled(schedule, tau_BL, mask_BL, weights64_BL, options)
    remapped_BL = _remapped(tau_BL, mask_BL, state_index_BL, row_keys_B, options)
    factor_B = _mass_factor(rows, groups, tau_BL, remapped_BL, mask_BL, weights64_BL, schedule, options)

    weight_BL = torch.empty(tau_BL.shape, dtype=torch.float64, device=device)
    coef_BL = torch.empty(tau_BL.shape, dtype=torch.float64, device=device)
    for part, coef, active, scale in _scales(rows, remapped_BL, mask_BL, schedule):
        coef_BL[part] = _masked_(coef, active)
        weight_BL[part] = 1.0 if options.control == "flat" else _masked_(scale, active)
    score_B = _fill_general_(weight_BL, factor_B, coef_BL, rewards64_B, groups, rows, weights64_BL, options)
    parts = AdvantageParts(
        sequence=score_B,
        token_weight=weight_BL,
        state_weight=None if factor_B is None else factor_B.unsqueeze(1),
        bound=rows.bound_B if options.baseline == "leave-one-out" else None,
        weighted=options.base == "standardised",
        unweighted=rows.score_B,
        risk_coef=coef_BL,
    )
    info = {"constant_risk_coef": schedule.risk_coef} if options.control == "constant" else {}  # type: ignore[attr-defined]
    return parts, info


def _check(rows: Rows, schedule: object, options: Options) -> None:
    if not isinstance(schedule, AbstractSchedule):
        raise ArgumentError(
            f"schedule is {schedule!r}; give a schedule object, e.g. steprs.ConstantSchedule(2.0), or a dataclass "
            "below steprs.AbstractSchedule with the method _coefficients"
        )
    if options.control not in ("full", "centred", "flat") and bool(rows.general_B.any()):
        raise ArgumentError(
            f"control {options.control!r} is defined for two-valued rewards, and a group holds three different ones; "
            "threshold the rewards or use 'full', 'flat' or 'centred'"
        )


def _scheduled(
    schedule: AbstractSchedule, tau_BL: Tensor, mask_BL: Tensor, weights_BL: Tensor, options: Options
) -> AbstractSchedule:
    """The schedule as the control replaces it."""
    if options.control == "centred":
        return ConstantSchedule(0.0)
    if options.control != "constant":
        return schedule
    filled_BL = tau_BL.double().masked_fill(~mask_BL, 0.0)
    p0 = options.reference_pass_rate or 0.0
    return ConstantSchedule(matched_constant(schedule, filled_BL, weights_BL, p0, all_reduce=options.all_reduce))


def _scales(
    rows: Rows, tau_BL: Tensor, mask_BL: Tensor, schedule: AbstractSchedule
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Rows in pieces that fit a cache: (rows, coefficients, the mask as 0. and 1., c(p, b)).

    Coefficients and scales are the caller's to overwrite; where the mask is false they are finite and mean nothing.
    """
    count, length = tau_BL.shape
    step = count if tau_BL.device.type != "cpu" else max(1, CHUNK // max(1, length))
    for start in range(0, count, max(1, step)):
        part = slice(start, min(count, start + step))
        mask, tau = mask_BL[part], tau_BL[part].double()
        # Padding may hold anything, NaN included; only then is the filled copy paid for.
        if not _within(tau, 0.0, 1.0):
            tau = tau.masked_fill(~mask, 0.0)
        coef = schedule(tau, rows.share_for(schedule, part))
        if coef.shape != tau.shape or coef.dtype != torch.float64:
            raise ArgumentError(
                f"schedule gave {coef.dtype} {list(coef.shape)} for progress {list(tau.shape)}; it must give float64 "
                "of that shape: try steprs.testing.check_schedule"
            )
        if not _within(coef, -math.inf, math.inf):
            raise ArgumentError(
                "schedule gave a coefficient that is NaN or infinite; try steprs.testing.check_schedule"
            )
        if bool(rows.live_B[part].any()):
            width = rows.width_B[part].unsqueeze(1)
            in_rewards = coef if bool((width == 1).all()) else coef * width
            scale = two_valued_scale(rows.rate_B[part].unsqueeze(1), in_rewards)
        else:
            scale = torch.ones_like(coef)
        yield part, coef, mask.double(), scale


def _within(values: Tensor, low: float, high: float) -> bool:
    """All values are finite and in [low, high]; NaN is not."""
    if values.numel() == 0:
        return True
    least, most = (float(bound) for bound in torch.aminmax(values))
    return math.isfinite(least) and math.isfinite(most) and least >= low and most <= high


def _masked_(values: Tensor, active: Tensor) -> Tensor:
    """In place 0 where `active` is 0. Adding 0 turns -0 into 0; multiplying is several times faster than filling."""
    return values.mul_(active).add_(0.0)


def _remapped(
    tau_BL: Tensor, mask_BL: Tensor, state_index_BL: Tensor | None, row_keys_B: Tensor | None, options: Options
) -> Tensor:
    """Progress as the control sees it."""
    if options.control == "reverse":
        return mirrored(tau_BL.double(), mask_BL)
    if not options.control.startswith("shuffle"):
        return tau_BL
    keys_B = torch.arange(tau_BL.shape[0]) if row_keys_B is None else row_keys_B
    keys_B, seed = keys_B.to(tau_BL.device).long(), options.seed or 0
    if options.control == "shuffle-token":
        return shuffled_tokens(tau_BL.double(), mask_BL, seed=seed, row_keys_B=keys_B)
    states_BL = None if state_index_BL is None else state_index_BL.to(tau_BL.device)
    return shuffled_states(tau_BL.double(), mask_BL, states_BL, seed=seed, row_keys_B=keys_B)


def _mass_factor(
    rows: Rows,
    groups: Groups,
    tau_BL: Tensor,
    remapped_BL: Tensor,
    mask_BL: Tensor,
    weights_BL: Tensor,
    schedule: AbstractSchedule,
    options: Options,
) -> Tensor | None:
    """What the control multiplies each row by: M_g / sum v, its inverse, M_g / M_g(remapped), or nothing."""
    if options.control not in ("flat", "state-only", "reverse", "shuffle-state"):
        return None

    def mass(progress_BL: Tensor) -> Tensor:
        mass_B = torch.empty_like(rows.score_B)
        for part, _, _, scale in _scales(rows, progress_BL, mask_BL, schedule):
            mass_B[part] = scale.mul_(weights_BL[part]).sum(1)
        return groups.sum(mass_B)

    kept_P = mass(tau_BL)
    if options.control in ("reverse", "shuffle-state"):
        over_P, under_P = kept_P, mass(remapped_BL)
    else:
        weight_P = groups.sum(weights_BL.sum(1))
        over_P, under_P = (kept_P, weight_P) if options.control == "flat" else (weight_P, kept_P)
    empty_P = under_P == 0
    return torch.where(empty_P, 1.0, over_P / torch.where(empty_P, 1.0, under_P))[groups.index_B]


def _fill_general_(
    weight_BL: Tensor,
    factor_B: Tensor | None,
    coef_BL: Tensor,
    rewards_B: Tensor,
    groups: Groups,
    rows: Rows,
    weights_BL: Tensor,
    options: Options,
) -> Tensor:
    """Score of every row. Groups that are not two-valued get score and factor 1 and the advantage for a weight."""
    score_B = torch.where(rows.general_B, 1.0, rows.score_B)
    if factor_B is not None:
        factor_B[rows.general_B] = 1.0
    for rows_PG in groups.blocks:
        for rows_G in rows_PG[rows.general_B[rows_PG[:, 0]]]:
            rewards_1G, coef_GL = rewards_B[rows_G].unsqueeze(0), coef_BL[rows_G]
            if options.control == "flat":
                # The mean over all tokens of the group, as cbar_g is: members keep one set of coefficients.
                at_all_GN = coef_GL.reshape(1, 1, -1).expand(1, rows_G.numel(), -1).contiguous()
                share_N = weights_BL[rows_G].flatten() / weights_BL[rows_G].sum().clamp(min=1e-300)
                value_G1 = (general_advantages(rewards_1G, at_all_GN)[0] * share_N).sum(1, keepdim=True)
                value_GL = value_G1.expand_as(coef_GL).contiguous()
            else:
                value_GL = general_advantages(rewards_1G, coef_GL.unsqueeze(0), options.baseline)[0]
            weight_BL[rows_G] = value_GL / rows.sigma_B[rows_G].unsqueeze(1)
    return score_B
