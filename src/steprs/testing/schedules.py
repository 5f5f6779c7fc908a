"""Conformance of a schedule, for tests of your own: `check_schedule(MySchedule(...))`."""

from __future__ import annotations

import torch

from ..errors import ArgumentError
from ..schedules import AbstractSchedule, scaled

# Vectorised elementary functions may differ in the last bit with the position in a tensor.
_CLOSE = 1e-12


def check_schedule(schedule: AbstractSchedule, *, pass_rates: tuple[float, ...] = (0.0, 0.1, 0.5, 1.0)) -> None:
    """Check everything that the rest of the package takes for granted about a schedule.

    Args:
        schedule: the object to check.
        pass_rates: observed pass rates to try on schedules that use them.

    Raises:
        AssertionError: names the first rule that is broken.

    >>> from steprs.schedules import LinearSchedule
    >>> check_schedule(LinearSchedule(2.0, 0.0))
    """
    _require(isinstance(schedule, AbstractSchedule), "a schedule is an AbstractSchedule")
    _require(bool(schedule.describe().strip()), "describe() gives a short text")
    _require(hash(schedule) == hash(schedule) and schedule == schedule, "a schedule is hashable: frozen data")
    for pass_rate in pass_rates if schedule.uses_pass_rate else (None,):
        _check_values(schedule, pass_rate)
    if schedule.uses_pass_rate:
        _check_pass_rate(schedule, pass_rates)
    for bad in (-0.01, 1.01, float("nan")):
        _require(_refused(schedule, bad, pass_rates[0]), f"progress {bad} is refused with an ArgumentError")


def _check_values(schedule: AbstractSchedule, pass_rate: float | None) -> None:
    tau = torch.linspace(0, 1, 201, dtype=torch.float64)
    before = tau.clone()
    coef = schedule(tau, pass_rate)
    _require(bool((tau == before).all()), "progress is not changed in place")
    _require(coef.dtype == torch.float64 and coef.shape == tau.shape, "coefficients are float64 of progress's shape")
    _require(bool(torch.isfinite(coef).all()), "coefficients are finite on [0, 1]")
    _require(not schedule(tau.clone().requires_grad_(), pass_rate).requires_grad, "no gradient flows through")
    _require(torch.equal(schedule(tau, pass_rate), coef), "the same progress gives the same bits")
    _require(_near(schedule(tau.reshape(3, 67), pass_rate).flatten(), coef), "coefficients are element by element")
    _require(_near(schedule(tau.flip(0), pass_rate).flip(0), coef), "coefficients do not depend on position")
    one = schedule(0.5, pass_rate)
    _require(one.shape == () and _near(one, coef[100]), "a plain number gives a scalar tensor")
    _require(_near(scaled(schedule, 2.0)(tau, pass_rate), 2 * coef), "scaled(schedule, 2) doubles the coefficients")
    _require(schedule(tau[:0], pass_rate).shape == (0,), "no tokens give no coefficients")


def _check_pass_rate(schedule: AbstractSchedule, pass_rates: tuple[float, ...]) -> None:
    _require(_refused(schedule, 0.5, None), "a missing pass rate is refused with an ArgumentError")
    tau = torch.linspace(0, 1, 11, dtype=torch.float64).expand(len(pass_rates), 11)
    together = schedule(tau, torch.tensor(pass_rates, dtype=torch.float64).unsqueeze(1))
    apart = torch.stack([schedule(tau[0], rate) for rate in pass_rates])
    _require(together.shape == apart.shape and _near(together, apart), "pass rates broadcast with progress")


def _refused(schedule: AbstractSchedule, progress: float, pass_rate: float | None) -> bool:
    try:
        schedule(progress, pass_rate)
    except ArgumentError:
        return True
    return False


def _near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.allclose(found, wanted, rtol=_CLOSE, atol=_CLOSE * float(wanted.abs().max().clamp(min=1.0)))


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(f"schedule breaks a rule: {rule}")
