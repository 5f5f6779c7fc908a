"""Stepwise advantages: A[i, l] = A_i(b(tau[i, l])), the composition of rewards, schedule, control and matching.

The order of the stages is fixed: score the group, transform at each token's own coefficient, apply the control, cap
(leave-one-out only), match the RMS, mask, cast. Standardising is a choice of the *score*; afterwards it is refused.
For two-valued rewards the work is O(P G L): c(p, b) depends on the group through p alone.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..controls import AllReduce, Control, Groups, RmsMatch
from ..errors import ArgumentError, RewardError
from ..risk import Baseline, check_rewards, float64_device, reward_dtype
from ..schedules import AbstractSchedule
from ..types import Advantages
from .composition import stepwise_parts
from .layout import lay_out, two_valued
from .parts import AdvantageParts, expand, normalise
from .scores import Base, Options, Score, grouped, standardise

__all__ = [
    "AdvantageParts", "Base", "Score", "dead_groups", "expand", "normalise", "standardise", "stepwise_advantages",
    "stepwise_advantages_flat",
]  # fmt: skip


def dead_groups(rewards_PG: Tensor) -> Tensor:
    """Groups that carry no signal: all rewards equal up to 1e-8 of their size. For skipping work, nothing else.

    Args:
        rewards_PG: finite rewards [P, G].

    Returns:
        bool [P]: max - min <= 1e-8 max(1, max |r|).

    >>> dead_groups(torch.tensor([[0.1 + 0.2, 0.3], [0.0, 1.0]], dtype=torch.float64))
    tensor([ True, False])
    """
    check_rewards(rewards_PG)
    rewards_PG = rewards_PG.detach().to(float64_device(rewards_PG.device)).double()
    spread_P = rewards_PG.amax(1) - rewards_PG.amin(1)
    return (spread_P <= 1e-8 * rewards_PG.abs().amax(1).clamp(min=1.0)).to(rewards_PG.device)


@torch.no_grad()
def stepwise_advantages(
    rewards_PG: Tensor,
    progress_PGL: Tensor,
    schedule: AbstractSchedule,
    *,
    mask_PGL: Tensor,
    weights_PGL: Tensor | None = None,
    control: Control = "full",
    rms_match: RmsMatch | None = None,
    base: Base = "centred",
    baseline: Baseline = "group",
    reference_pass_rate: float | None = None,
    seed: int | None = None,
    state_index_PGL: Tensor | None = None,
    row_keys_PG: Tensor | None = None,
    valid_PG: Tensor | None = None,
    cap: float | None = None,
    std_ddof: int = 1,
    all_reduce: AllReduce | None = None,
) -> Advantages:
    """A[i, l] = A_i(b(tau[i, l])) for every token: one advantage a denoising state, never one scalar a row.

    A constant schedule is risk-sensitive GRPO and the schedule 0 is r - mean(r), both bit for bit.

    Args:
        rewards_PG: finite rewards [P, G], G >= 2.
        progress_PGL: denoising progress tau in [0, 1] of each token; anything outside the mask.
        schedule: tau (and, for some, the group's observed pass rate) to risk coefficient, unit 1/reward.
        mask_PGL: bool, tokens that count.
        weights_PGL: loss weights v >= 0 of the active aggregation, for controls and RMS matching; None is token mean.
        control: "full", or a control of `steprs.controls`: "flat", "constant", "reverse", "shuffle-token",
            "shuffle-state", "state-only", "centred". All but "full", "centred" and "flat" need two-valued groups; all
            but the first two need baseline "group".
        rms_match: rescale to the RMS of the centred advantages: one factor an update ("batch"), or the diagnostics
            "group", "state", "group-state". None: no matching.
        base: "centred", or "standardised": divided by the *rewards'* standard deviation + 1e-4.
        baseline: "group" or "leave-one-out".
        reference_pass_rate: p0, for control "constant".
        seed: for the shuffles.
        state_index_PGL: integer state of each token (`unmask_step`) for "shuffle-state" and RMS by state; None takes
            tokens of equal progress as one state.
        row_keys_PG: int64 identity of each rollout, so that a shuffle does not depend on its place in the batch.
        valid_PG: bool; false takes a rollout out of its group (its reward is not looked at). Groups left with fewer
            than two get advantage 0.
        cap: bound on |A| before standardising, leave-one-out only; None is G - 1.
        std_ddof: for base "standardised".
        all_reduce: sums a float64 tensor over processes, for rms_match "batch" and control "constant".

    Returns:
        Advantages: values [P, G, L] in the rewards' type, coefficients float64 [P, G, L], both 0 outside the mask and
        without gradient. For "flat" and "state-only" the coefficients are those of the schedule they derive from.
        Metrics: `rms_scale` (mean factor), `cap_hits` and `cap_share` (tokens), `binary_exact` (1 iff all rewards
        take at most two values), `dead_groups` (share), and `constant_risk_coef` for that control.

    Raises:
        ArgumentError: shapes, names, progress or coefficients that cannot be used; a missing input of a control.
        RewardError: a reward is NaN or infinite.
        NormalisationError: base "standardised-after".

    >>> from steprs.schedules import LinearSchedule
    >>> tau = torch.tensor([0.0, 1.0]).expand(1, 4, 2)
    >>> rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    >>> made = stepwise_advantages(rewards, tau, LinearSchedule(2.0, 0.0), mask_PGL=torch.ones(1, 4, 2).bool())
    >>> made.values_PGL[0, :2]
    tensor([[ 0.9225,  0.7500],
            [-0.3075, -0.2500]])
    """
    if valid_PG is not None and valid_PG.shape == rewards_PG.shape:
        rewards_PG = rewards_PG.masked_fill(~valid_PG.bool(), 0)
    check_rewards(rewards_PG)
    count, size = rewards_PG.shape
    _check_shape("progress_PGL", progress_PGL, (count, size, -1))
    shape = progress_PGL.shape
    for name, tensor in {"mask_PGL": mask_PGL, "weights_PGL": weights_PGL, "state_index_PGL": state_index_PGL}.items():
        _check_shape(name, tensor, shape)
    _check_shape("row_keys_PG", row_keys_PG, (count, size))
    _check_shape("valid_PG", valid_PG, (count, size))
    rows_PG = torch.arange(count * size, device=float64_device(rewards_PG.device)).view(count, size)
    groups = Groups(index_B=rows_PG.flatten() // size, count=count, blocks=(rows_PG,) if count else ())
    if valid_PG is not None:
        groups = grouped(groups.index_B, valid_PG.bool().flatten())
    made = _assembled(
        rewards_PG.flatten(),
        groups,
        progress_PGL.flatten(0, 1),
        schedule,
        Options(control=control, rms_match=rms_match, base=base, baseline=baseline, cap=cap, std_ddof=std_ddof,
                 reference_pass_rate=reference_pass_rate, seed=seed, all_reduce=all_reduce),
        mask_BL=mask_PGL.flatten(0, 1),
        weights_BL=None if weights_PGL is None else weights_PGL.flatten(0, 1),
        state_index_BL=None if state_index_PGL is None else state_index_PGL.flatten(0, 1),
        row_keys_B=None if row_keys_PG is None else row_keys_PG.flatten(),
    )  # fmt: skip
    return replace(made, values_PGL=made.values_PGL.view(shape), risk_coef_PGL=made.risk_coef_PGL.view(shape))


@torch.no_grad()
def stepwise_advantages_flat(
    rewards_B: Tensor,
    group_ids_B: Tensor,
    progress_BL: Tensor,
    schedule: AbstractSchedule,
    *,
    mask_BL: Tensor,
    weights_BL: Tensor | None = None,
    control: Control = "full",
    rms_match: RmsMatch | None = None,
    base: Base = "centred",
    baseline: Baseline = "group",
    reference_pass_rate: float | None = None,
    seed: int | None = None,
    state_index_BL: Tensor | None = None,
    row_keys_B: Tensor | None = None,
    valid_B: Tensor | None = None,
    cap: float | None = None,
    std_ddof: int = 1,
    all_reduce: AllReduce | None = None,
) -> Advantages:
    """`stepwise_advantages` for rows in any order, with groups of any sizes >= 2 named by arbitrary integers.

    Every argument means what it does there, with one axis B in the place of P and G. `group_ids_B` are integers [B]:
    rows with equal ids form a group, adjacent or not. The leave-one-out cap is each group's own size - 1.

    Returns:
        Advantages with values and coefficients [B, L]; bit for bit those of `stepwise_advantages` for regular groups.

    Raises:
        ArgumentError: as there, and a group with one row.
        RewardError: a reward is NaN or infinite; names the row and the group.
        NormalisationError: as there.

    >>> from steprs.schedules import ConstantSchedule
    >>> tau, mask = torch.zeros(5, 1), torch.ones(5, 1).bool()
    >>> ids = torch.tensor([7, 3, 7, 3, 7])
    >>> rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    >>> stepwise_advantages_flat(rewards, ids, tau, ConstantSchedule(0.0), mask_BL=mask).values_PGL.flatten()
    tensor([ 0.6667,  0.5000, -0.3333, -0.5000, -0.3333])
    """
    if not isinstance(rewards_B, Tensor) or rewards_B.ndim != 1 or rewards_B.is_complex():
        raise ArgumentError("rewards_B must be a real tensor [B]: one reward a row")
    count = rewards_B.shape[0]
    _check_shape("group_ids_B", group_ids_B, (count,))
    if group_ids_B.is_floating_point() or group_ids_B.is_complex():
        raise ArgumentError(f"group_ids_B has type {group_ids_B.dtype}; give integers")
    _check_shape("progress_BL", progress_BL, (count, -1))
    shape = progress_BL.shape
    for name, tensor in {"mask_BL": mask_BL, "weights_BL": weights_BL, "state_index_BL": state_index_BL}.items():
        _check_shape(name, tensor, shape)
    _check_shape("row_keys_B", row_keys_B, (count,))
    _check_shape("valid_B", valid_B, (count,))
    if valid_B is not None:
        rewards_B = rewards_B.masked_fill(~valid_B.bool(), 0)
    finite_B = torch.isfinite(rewards_B)
    if not bool(finite_B.all()):
        row = int((~finite_B).nonzero()[0])
        raise RewardError(
            f"reward of row {row} (group {int(group_ids_B[row])}) is {float(rewards_B[row])}; "
            "rewards must be finite: fix the verifier or mask the sample"
        )
    groups = grouped(group_ids_B.to(float64_device(group_ids_B.device)), None if valid_B is None else valid_B.bool())
    return _assembled(
        rewards_B,
        groups,
        progress_BL,
        schedule,
        Options(control=control, rms_match=rms_match, base=base, baseline=baseline, cap=cap, std_ddof=std_ddof,
                 reference_pass_rate=reference_pass_rate, seed=seed, all_reduce=all_reduce),
        mask_BL=mask_BL,
        weights_BL=weights_BL,
        state_index_BL=state_index_BL,
        row_keys_B=row_keys_B,
    )  # fmt: skip


def _assembled(
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
    """Parts, laid out over tokens, on the rewards' device again."""
    home, device = rewards_B.device, groups.index_B.device
    parts, info = stepwise_parts(
        rewards_B, groups, progress_BL, schedule, options,
        mask_BL=mask_BL, weights_BL=weights_BL, state_index_BL=state_index_BL, row_keys_B=row_keys_B,
    )  # fmt: skip
    mask_BL = mask_BL.to(device).bool()
    # No part of a stepwise advantage is indexed by state: progress stands for it.
    nowhere_BL = torch.zeros((), dtype=torch.int64, device=device).expand(mask_BL.shape)
    values_BL, metrics = lay_out(
        parts, groups,
        state_BL=nowhere_BL, mask_BL=mask_BL, weights_BL=weights_BL, rms_match=options.rms_match,
        rms_states_BL=(progress_BL if state_index_BL is None else state_index_BL).detach().to(device),
        all_reduce=options.all_reduce, dtype=reward_dtype(rewards_B),
    )  # fmt: skip
    assert parts.unweighted is not None and parts.risk_coef is not None
    dead_P = groups.sum((parts.unweighted != 0).double()) == 0
    metrics |= {
        "binary_exact": float(two_valued(rewards_B.to(device).double(), groups)),
        "dead_groups": float(dead_P.double().mean()) if groups.count else 0.0,
    }
    coef_BL = parts.risk_coef
    return Advantages(
        values_PGL=values_BL.to(home),
        risk_coef_PGL=coef_BL if home == device else coef_BL.to(torch.get_default_dtype()).to(home),
        metrics=metrics | info,
    )


def _check_shape(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    """`tensor` is None or has `shape`, -1 for any length."""
    if tensor is None:
        return
    given = tuple(tensor.shape) if isinstance(tensor, Tensor) else (type(tensor).__name__,)
    if len(given) != len(shape) or any(want not in (-1, have) for want, have in zip(shape, given, strict=True)):
        raise ArgumentError(f"{name} has shape {list(given)}; {[n if n >= 0 else 'L' for n in shape]} is needed")
