"""The stages of a stepwise advantage on rows in any order. Two-valued groups never meet an axis of pairs of members."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ..controls import Groups, matched_constant, mirrored, rms_factors, shuffled_states, shuffled_tokens
from ..errors import ArgumentError
from ..risk import general_advantages, reward_dtype, two_valued_scale
from ..schedules import AbstractSchedule, ConstantSchedule
from ..types import Advantages
from .scores import Options, Rows

# Elements of one pass on a CPU: a few float64 temporaries of this size stay in the second-level cache.
_CHUNK = 1 << 15


def compose(
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
) -> Advantages:
    """All stages on rows in any order; see the module's first paragraph."""
    home, device = rewards_B.device, groups.index_B.device
    rewards64_B = rewards_B.detach().to(device).double()
    tau_BL, mask_BL = progress_BL.detach().to(device), mask_BL.to(device).bool()
    rows = Rows.of(rewards64_B, groups, options)
    _check(rows, schedule, options)
    needs_weights = options.control not in ("full", "centred", "shuffle-token") or options.rms_match is not None
    weights64_BL = _loss_weights(weights_BL, mask_BL) if needs_weights else mask_BL
    schedule = _scheduled(schedule, tau_BL, mask_BL, weights64_BL, options)
    remapped_BL = _remapped(tau_BL, mask_BL, state_index_BL, row_keys_B, options)
    factor_B = _mass_factor(rows, groups, tau_BL, remapped_BL, mask_BL, weights64_BL, schedule, options)

    exact = options.rms_match is not None
    values_BL = torch.empty(tau_BL.shape, dtype=torch.float64 if exact else reward_dtype(rewards_B), device=device)
    coef_BL = torch.empty(tau_BL.shape, dtype=torch.float64, device=device)
    hits = 0
    for part, coef, active, scale in _scales(rows, remapped_BL, mask_BL, schedule):
        score = rows.score_B[part].unsqueeze(1)
        if options.control == "flat" and factor_B is not None:
            value = (score * factor_B[part].unsqueeze(1)).expand_as(coef).contiguous()
        else:
            value = scale.mul_(score)
            value = value if factor_B is None else value.mul_(factor_B[part].unsqueeze(1))
        hits += _capped_(value, rows.bound_B[part], mask_BL[part])
        coef_BL[part] = _masked_(coef, active)
        values_BL[part] = _masked_(value, active)
    hits += _fill_general_(values_BL, coef_BL, rewards64_B, groups, rows, mask_BL, weights64_BL, options)
    factors = torch.ones(1)
    if options.rms_match is not None:
        states_BL = (tau_BL if state_index_BL is None else state_index_BL.to(device)).masked_fill(~mask_BL, 0)
        factors = rms_factors(
            values_BL, rows.score_B.unsqueeze(1), weights64_BL, options.rms_match,
            groups=groups, states_BL=states_BL, all_reduce=options.all_reduce,
        )  # fmt: skip
        values_BL = values_BL.mul_(factors)
    metrics = {
        "rms_scale": float(factors.mean()),
        "cap_hits": float(hits),
        "cap_share": hits / max(1, int(mask_BL.sum())) if hits else 0.0,
        "binary_exact": float(_two_valued(rewards64_B, groups)),
        "dead_groups": float((groups.sum(rows.live_B.double()) == 0).double().mean()) if groups.count else 0.0,
    }
    if options.control == "constant" and isinstance(schedule, ConstantSchedule):
        metrics["constant_risk_coef"] = schedule.risk_coef
    return Advantages(
        values_PGL=values_BL.to(device=home, dtype=reward_dtype(rewards_B)),
        risk_coef_PGL=coef_BL if home == device else coef_BL.to(torch.get_default_dtype()).to(home),
        metrics=metrics,
    )


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
    step = count if tau_BL.device.type != "cpu" else max(1, _CHUNK // max(1, length))
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


def _capped_(value: Tensor, bound_R: Tensor, mask: Tensor) -> int:
    """Clamp in place where a bound is set; how many active tokens hit it."""
    if not bool(torch.isfinite(bound_R).any()):
        return 0
    bound = bound_R.unsqueeze(1)
    over = (value.abs() > bound) & mask
    torch.minimum(torch.maximum(value, -bound, out=value), bound, out=value)
    return int(over.sum())


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
    values_BL: Tensor,
    coef_BL: Tensor,
    rewards_B: Tensor,
    groups: Groups,
    rows: Rows,
    mask_BL: Tensor,
    weights_BL: Tensor,
    options: Options,
) -> int:
    """Overwrite the rows of groups that are not two-valued, one group at a time; how many tokens were capped."""
    hits = 0
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
            value_GL = value_GL / rows.sigma_B[rows_G].unsqueeze(1)
            hits += _capped_(value_GL, rows.bound_B[rows_G], mask_BL[rows_G])
            values_BL[rows_G] = value_GL.masked_fill_(~mask_BL[rows_G], 0.0).to(values_BL.dtype)
    return hits


def _loss_weights(weights_BL: Tensor | None, mask_BL: Tensor) -> Tensor:
    """Loss weights as float64, 0 where not active."""
    if weights_BL is None:
        return mask_BL.double()
    weights_BL = weights_BL.detach().to(mask_BL.device).double().masked_fill(~mask_BL, 0.0)
    if not bool((torch.isfinite(weights_BL) & (weights_BL >= 0)).all()):
        raise ArgumentError("weights hold a value that is negative, NaN or infinite; give the loss weights, all >= 0")
    return weights_BL


def _two_valued(rewards_B: Tensor, groups: Groups) -> bool:
    """Whether all rewards that are compared take at most two values."""
    kept = [rewards_B[rows_PG].flatten() for rows_PG in groups.blocks]
    if not kept:
        return True
    rewards_N = torch.cat(kept)
    low, high = torch.aminmax(rewards_N)
    return bool(((rewards_N == low) | (rewards_N == high)).all())
