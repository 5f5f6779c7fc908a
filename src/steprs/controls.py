"""Matched controls: advantages that share everything with the stepwise ones but the factor they isolate.

Let c[i, l] = c(p_g, b(tau[i, l])) and v the weights of the active loss aggregation; the mass of a group is
M_g = sum v c. A control is a remapping of progress (`reverse`, `shuffle-token`, `shuffle-state`), a schedule
(`constant`, `centred`), or a factor per group (`flat`, `state-only`, and what restores the mass of the remapped ones).
A control that was matched with other weights is matched for another loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .calibration import bisect_root, calibrate_risk
from .errors import ArgumentError, CalibrationError
from .randomness import row_keys, uniforms
from .risk import risk_scale
from .schedules import AbstractSchedule

Control = Literal["full", "flat", "constant", "reverse", "shuffle-token", "shuffle-state", "state-only", "centred"]
CONTROLS: tuple[str, ...] = (
    "full", "flat", "constant", "reverse", "shuffle-token", "shuffle-state", "state-only", "centred",
)  # fmt: skip
RmsMatch = Literal["batch", "group", "state", "group-state"]
RMS_MATCHES: tuple[str, ...] = ("batch", "group", "state", "group-state")
AllReduce = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """Which rows form a group. Groups of one size are summed together, so equal layouts give equal bits.

    Attributes:
        index_B: int64 group of each row, 0 .. count-1.
        count: number of groups.
        blocks: for each group size n, the rows of its groups, int64 [P_n, n]. Rows in no block belong to no comparison.
    """

    index_B: Tensor
    count: int
    blocks: tuple[Tensor, ...]

    def sum(self, values_B: Tensor) -> Tensor:
        """Sum over each group's rows, [count]; 0 for a group without rows in a block."""
        sums_P = values_B.new_zeros(self.count)
        for rows_PG in self.blocks:
            sums_P[self.index_B[rows_PG[:, 0]]] = values_B[rows_PG].sum(1)
        return sums_P


def mirrored(progress_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """tau_lo + tau_hi - tau, with the extremes over each row's active tokens; inactive tokens become 0.

    >>> mirrored(torch.tensor([[0.0, 0.25, 0.75, 0.9]]), torch.tensor([[True, True, True, False]])).tolist()
    [[0.75, 0.5, 0.0, 0.0]]
    """
    low_B1 = progress_BL.masked_fill(~mask_BL, 1.0).amin(1, keepdim=True)
    high_B1 = progress_BL.masked_fill(~mask_BL, 0.0).amax(1, keepdim=True)
    mirrored_BL = torch.maximum(torch.minimum(low_B1 + high_B1 - progress_BL, high_B1), low_B1)
    return mirrored_BL.masked_fill(~mask_BL, 0.0)


def shuffled_tokens(progress_BL: Tensor, mask_BL: Tensor, *, seed: int, row_keys_B: Tensor) -> Tensor:
    """A permutation of each row's active tokens, keyed by (seed, row key) and not by the position in the batch."""
    order_BL = torch.argsort(_uniforms(seed, row_keys_B, progress_BL.shape[1]).masked_fill(~mask_BL, 2.0), stable=True)
    active_BL = torch.argsort((~mask_BL).long(), stable=True)
    return torch.zeros_like(progress_BL).scatter(1, active_BL, progress_BL.gather(1, order_BL))


def shuffled_states(
    progress_BL: Tensor, mask_BL: Tensor, state_index_BL: Tensor | None, *, seed: int, row_keys_B: Tensor
) -> Tensor:
    """A permutation of each row's states: tokens revealed together stay together.

    Args:
        progress_BL: float64 progress.
        mask_BL: active tokens.
        state_index_BL: state of each token (`unmask_step`); None takes equal progress as equal state.
        seed: of the permutation.
        row_keys_B: int64 identity of each row.

    Raises:
        ArgumentError: progress differs inside a state, so the state has no coefficient of its own.
    """
    rank_BL = _state_ranks(progress_BL if state_index_BL is None else state_index_BL, mask_BL)
    length = progress_BL.shape[1]
    by_state_BS = torch.zeros_like(progress_BL).scatter(1, rank_BL, progress_BL)
    if not bool(((by_state_BS.gather(1, rank_BL) == progress_BL) | ~mask_BL).all()):
        raise ArgumentError("progress differs between tokens of one state; pass the state_index it was computed from")
    count_B1 = torch.where(mask_BL, rank_BL + 1, 0).amax(1, keepdim=True)
    exists_BS = torch.arange(length, device=progress_BL.device) < count_B1
    draws_BS = _uniforms(seed, row_keys_B, length).masked_fill(~exists_BS, 2.0)
    permuted_BS = by_state_BS.gather(1, torch.argsort(draws_BS, stable=True))
    return permuted_BS.gather(1, rank_BL).masked_fill(~mask_BL, 0.0)


def _state_ranks(states_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """0-based rank of each active token's state among its row's states; inactive tokens hold the last position."""
    last = states_BL.shape[1] - 1
    beyond = states_BL.new_tensor(math.inf if states_BL.is_floating_point() else torch.iinfo(states_BL.dtype).max)
    sorted_BL, order_BL = torch.sort(torch.where(mask_BL, states_BL, beyond), dim=1, stable=True)
    new_BL = torch.zeros_like(order_BL)
    new_BL[:, 1:] = sorted_BL[:, 1:] != sorted_BL[:, :-1]
    ranks_BL = torch.zeros_like(order_BL).scatter(1, order_BL, new_BL.cumsum(1))
    # With every token active the ranks end at `last` at most, so an inactive token never shares a real state's slot.
    return torch.where(mask_BL, ranks_BL, last)


def _uniforms(seed: int, row_keys_B: Tensor, length: int) -> Tensor:
    """One number a row and place, by the row's own key: float64 [B, length]."""
    keys_B = row_keys(seed, "shuffle", 0, row_keys_B, torch.zeros_like(row_keys_B))
    return uniforms(keys_B, 0, torch.arange(length, device=row_keys_B.device))


@torch.no_grad()
def matched_constant(
    schedule: AbstractSchedule,
    progress_BL: Tensor,
    weights_BL: Tensor,
    reference_pass_rate: float,
    *,
    all_reduce: AllReduce | None = None,
) -> float:
    """The one coefficient with the schedule's mass at pass rate p0: c(p0, b) sum v = sum v c(p0, b(tau)).

    Solve it once, on the first rollouts, and train with `ConstantSchedule` of the result: risk-sensitive GRPO of equal
    strength. Two coefficients have this mass in general; the one with the sign of the mean coefficient is taken (of
    two, the nearer to that mean), else the one nearest 0.

    Args:
        schedule: the schedule to match.
        progress_BL: progress of the tokens, any shape, 0 where not active.
        weights_BL: loss weights v of the tokens, 0 where not active, same shape.
        reference_pass_rate: p0 in (0, 1), as measured for calibration.
        all_reduce: sums a float64 tensor over processes.

    Raises:
        ArgumentError: p0 outside (0, 1).
        CalibrationError: no token has weight, or the mass exceeds what any constant reaches at p0.

    >>> tau = torch.linspace(0, 1, 5)
    >>> from steprs.schedules import LinearSchedule
    >>> round(matched_constant(LinearSchedule(2.0, 0.0), tau, torch.ones(5), 0.25), 4)
    0.7137
    """
    if not 0 < reference_pass_rate < 1:
        raise ArgumentError(f"reference_pass_rate is {reference_pass_rate}; control 'constant' needs one in (0, 1)")
    coef_BL = schedule(progress_BL, reference_pass_rate)
    weights_BL = weights_BL.double()
    scale_BL = risk_scale(reference_pass_rate, coef_BL)
    spread_BL = weights_BL * coef_BL
    sums = torch.stack([(weights_BL * scale_BL).sum(), spread_BL.sum(), spread_BL.abs().sum(), weights_BL.sum()])
    mass, coef, size, weight = (all_reduce(sums) if all_reduce else sums).tolist()
    if abs(coef) <= 1e-6 * size:  # a mean of 0 has no sign; what is left of it is rounding
        coef = 0.0
    if not weight > 0:
        raise CalibrationError("control 'constant' found no active token to match; pass rollouts with a non-empty mask")
    return _constant_with(mass / weight, coef / weight, reference_pass_rate)


def _constant_with(scale: float, mean_coef: float, p0: float) -> float:
    """Solve c(p0, b) = scale: c rises to one peak and falls, so there is one root on each side of it."""
    if scale == 1 and mean_coef == 0:
        return 0.0

    def excess(b: float) -> float:
        return float(risk_scale(p0, b)) - scale

    peak = calibrate_risk(p0, "max-scale")
    top = excess(peak)
    if top < -1e-12 * scale:
        raise CalibrationError(
            f"the schedule's mean scale {scale:.6g} at pass rate {p0:g} is above {scale + top:.6g}, the most that "
            "a constant coefficient reaches; lower the schedule's range"
        )
    if top <= 0:
        return peak
    # c < 1 / (b p) and c < 1 / (|b| (1 - p)) bound the roots.
    roots = [
        bisect_root(excess, peak, peak - 1 - 1 / (scale * (1 - p0)) - abs(peak)),
        bisect_root(excess, peak, peak + 1 + 1 / (scale * p0) + abs(peak)),
    ]
    agreeing = [root for root in roots if root * mean_coef > 0]
    return min(agreeing, key=lambda root: abs(root - mean_coef)) if agreeing else min(roots, key=abs)


@torch.no_grad()
def rms_factors(
    values_BL: Tensor,
    centred_B1: Tensor,
    weights_BL: Tensor,
    granularity: RmsMatch,
    *,
    groups: Groups,
    states_BL: Tensor,
    all_reduce: AllReduce | None = None,
) -> Tensor:
    """Factors s = RMS_v(centred) / RMS_v(A), so that s A has the RMS of centred GRPO in each bucket of tokens.

    Args:
        values_BL: float64 advantages A, 0 where not active.
        centred_B1: float64 centred advantages of the rows.
        weights_BL: float64 loss weights v, 0 where not active.
        granularity: bucket: all tokens of all processes, a group, a state over the batch, or a state of a group. The
            last cancels c(p, b) exactly: it gives centred GRPO back, and serves as a test.
        groups: the rows' groups.
        states_BL: state of each token; equal values are one state.
        all_reduce: sums a float64 tensor over processes, for `batch`; groups are whole on a process.

    Returns:
        [1, 1] for `batch`, [B, 1] for `group`, else [B, L]; 1 where nothing is active.

    Raises:
        ArgumentError: `state` with several processes, whose states have no common numbers.
    """
    if granularity == "state" and all_reduce is not None:
        raise ArgumentError("rms_match='state' is a one-process diagnostic; use 'batch', 'group' or 'group-state'")
    found_BL = values_BL.square().mul_(weights_BL)
    wanted_B, found_B = centred_B1.squeeze(1).square() * weights_BL.sum(1), found_BL.sum(1)
    if granularity == "batch":
        sums = torch.stack([wanted_B.sum(), found_B.sum()])
        wanted, found = (all_reduce(sums) if all_reduce else sums).unbind()
        return _ratio(wanted, found).reshape(1, 1)
    if granularity == "group":
        return _ratio(groups.sum(wanted_B), groups.sum(found_B))[groups.index_B].unsqueeze(1)
    names, bucket_BL = distinct(states_BL)
    if granularity == "group-state":
        bucket_BL = bucket_BL + groups.index_B.unsqueeze(1) * names.numel()
    wanted_BL = weights_BL * centred_B1.square()
    wanted_N = torch.bincount(bucket_BL.flatten(), weights=wanted_BL.flatten())
    found_N = torch.bincount(bucket_BL.flatten(), weights=found_BL.flatten())
    return _ratio(wanted_N, found_N)[bucket_BL]


def distinct(values: Tensor) -> tuple[Tensor, Tensor]:
    """The different values in ascending order, and for each element the position of its value among them."""
    unique: Any = torch.unique  # untyped in torch
    names, inverse = unique(values, return_inverse=True)
    return names, inverse


def _ratio(wanted: Tensor, found: Tensor) -> Tensor:
    empty = (found == 0) | (wanted == 0)
    return torch.where(empty, 1.0, (wanted / torch.where(empty, 1.0, found)).sqrt())
