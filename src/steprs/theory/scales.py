"""c(p, b(tau)) of a schedule as a map over progress and pass rate, and what groups of finite size leave of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..risk import finite_group_scale, risk_scale
from ..schedules import AbstractSchedule
from .sheet import Sheet
from .weights import checked_group_size, checked_rates


def schedule_scales(
    schedule: AbstractSchedule, pass_rates: Sequence[float], progress: Sequence[float], *, group_size: int | None = None
) -> Tensor:
    """c(p, b(tau)), or its mean over groups of finite size.

    Args:
        schedule: of any family. One that looks at the group's pass rate sees p itself in an infinite group, and K/G of
            each possible group in a finite one.
        pass_rates: N true pass rates in (0, 1).
        progress: T values of tau in [0, 1].
        group_size: G; None is an infinite group.

    Returns:
        float64 [N, T].

    Raises:
        ArgumentError: a pass rate, progress or group size that cannot be used.

    >>> from steprs.schedules import LinearSchedule
    >>> scales = schedule_scales(LinearSchedule(2.0, 0.0), [0.05, 0.5], [0, 0.5, 1])
    >>> [[round(c, 3) for c in row] for row in scales.tolist()]
    [[2.421, 1.582, 1.0], [0.762, 0.924, 1.0]]
    """
    rates_N, tau_T = checked_rates(pass_rates), torch.tensor(list(progress), dtype=torch.float64)
    if group_size is None:
        coef_NT = schedule(tau_T, rates_N[:, None]).expand(len(rates_N), len(tau_T))
        return risk_scale(rates_N[:, None], coef_NT)
    size = checked_group_size(group_size)

    def scales_at(tau: Tensor) -> Tensor:
        return finite_group_scale(rates_N, lambda observed: schedule(tau.expand_as(observed), observed), size)

    return torch.stack([scales_at(tau) for tau in tau_T], 1)


def schedule_sheet(
    schedule: AbstractSchedule, pass_rates: Sequence[float], progress: Sequence[float], *, group_size: int | None = None
) -> Sheet:
    """The coefficient by progress, and below it the scale: one row a pass rate, one column a value of tau."""
    scales_NT = schedule_scales(schedule, pass_rates, progress, group_size=group_size)
    tau_T = torch.tensor(list(progress), dtype=torch.float64)
    name = "c" if group_size is None else f"c_{group_size}"
    rows: list[tuple[float | str, ...]] = []
    if not schedule.uses_pass_rate:
        rows.append(("risk_coef", *schedule(tau_T).tolist()))
    elif group_size is None:
        coefs = schedule(tau_T, checked_rates(pass_rates)[:, None])
        rows += [(f"risk_coef, p={rate:g}", *row) for rate, row in zip(pass_rates, coefs.tolist(), strict=True)]
    rows += [(f"{name}, p={rate:g}", *row) for rate, row in zip(pass_rates, scales_NT.tolist(), strict=True)]
    return Sheet(
        title=f"{schedule.describe()} over denoising progress",
        columns=("", *(f"tau={tau:g}" for tau in progress)),
        rows=tuple(rows),
        notes=(f"{name}: factor on the centred reward of a prompt with pass rate p at progress tau",),
    )


def finite_group_sheet(
    schedule: AbstractSchedule, pass_rates: Sequence[float], group_sizes: Sequence[int], progress: Sequence[float]
) -> Sheet:
    """c beside c_G for several group sizes; one row a progress and pass rate.

    >>> from steprs.schedules import ConstantSchedule
    >>> [round(c, 2) for c in finite_group_sheet(ConstantSchedule(2.0), [0.05], [8, 16], [0.0]).rows[0]]
    [0.0, 0.05, 2.42, 1.42, 1.84]
    """
    sizes = (None, *group_sizes)
    scales_ENT = torch.stack([schedule_scales(schedule, pass_rates, progress, group_size=size) for size in sizes])
    rows = tuple(
        (tau, rate, *scales_ENT[:, n, t].tolist())
        for t, tau in enumerate(map(float, progress))
        for n, rate in enumerate(pass_rates)
    )
    return Sheet(
        title=f"{schedule.describe()}: an infinite group and finite ones",
        columns=("tau", "pass rate", "c", *(f"c_{size}" for size in group_sizes)),
        rows=rows,
        notes=("c_G: mean factor on the gradient of p over groups of G; all-equal groups give nothing",),
    )
