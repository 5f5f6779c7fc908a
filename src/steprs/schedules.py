"""Risk coefficients over denoising progress: b(tau), tau in [0, 1], 0 = nothing revealed yet.

A schedule is a frozen dataclass that is its own configuration. The families with two endpoints are
start + (end - start) u(tau), so equal endpoints are the constant schedule bit for bit. Which family, direction and
endpoints the published method uses is not known; every one here is a named choice. To add one: write a final dataclass
with `_coefficients`, add a line to `SCHEDULES`, run `steprs.testing.check_schedule`. Your own needs no line.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from .errors import ArgumentError


def _unit_interval(name: str, value: float | Tensor) -> Tensor:
    """The value as a detached float64 tensor in [0, 1]."""
    tensor = value.detach().double() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if tensor.numel():
        low, high = (float(bound) for bound in torch.aminmax(tensor))
        if not (low >= 0 and high <= 1):
            raise ArgumentError(f"{name} spans [{low:g}, {high:g}]; it must lie in [0, 1]")
    return tensor


def _between(start: float, end: float, u: Tensor) -> Tensor:
    # Two exactly rounded operations: a fused one would depend on where in the tensor a token stands.
    return (u * (end - start)).add_(start)


def _fields(schedule: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(schedule) if dataclasses.is_dataclass(schedule) else ()


class AbstractSchedule(ABC):
    """Interface of a schedule: a pure function of progress and, for some, of the group's observed pass rate.

    A schedule of your own is a final frozen dataclass with one method, `_coefficients`.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in _fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int) and not math.isfinite(value):
                raise ArgumentError(f"{type(self).__name__}.{field.name} is {value}; give a finite number")

    @final
    def __call__(self, progress: float | Tensor, pass_rate: float | Tensor | None = None) -> Tensor:
        """Coefficients at `progress`.

        Args:
            progress: tau in [0, 1], number or tensor [...].
            pass_rate: observed pass rate K/G of the group in [0, 1], broadcasting with `progress`; without effect on
                schedules whose `uses_pass_rate` is false.

        Returns:
            float64 tensor of the broadcast shape (of `progress` alone where the pass rate is not used), unit 1/reward.

        Raises:
            ArgumentError: progress or pass rate outside [0, 1], or a pass rate that is needed and missing.
        """
        tau = _unit_interval("denoising progress", progress)
        if not self.uses_pass_rate:
            return self._coefficients(tau, None)
        if pass_rate is None:
            raise ArgumentError(f"{self.describe()} needs pass_rate, the observed share of right answers in the group")
        return self._coefficients(tau, _unit_interval("pass_rate", pass_rate).to(tau.device))

    @abstractmethod
    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        """Return b at float64 `tau`, element by element; `tau` stays as it is. `pass_rate` is None unless used."""

    @property
    def uses_pass_rate(self) -> bool:
        """Whether coefficients depend on the group's observed pass rate; by default, whether a part's do."""
        return any(getattr(getattr(self, field.name), "uses_pass_rate", False) for field in _fields(self))

    @final
    def describe(self) -> str:
        """One short line for plans and legends.

        >>> ReversedSchedule(PowerSchedule(2.0, 0.0)).describe()
        'reversed(schedule=power(start=2, end=0, gamma=2))'
        """
        parts = []
        for field in _fields(self):
            value = getattr(self, field.name)
            number = f"{value:g}" if isinstance(value, float | int) else str(value)
            parts.append(f"{field.name}={value.describe() if isinstance(value, AbstractSchedule) else number}")
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(self).__name__.removesuffix("Schedule"))
        return f"{name.lower()}({', '.join(parts)})"


@final
@dataclass(frozen=True, slots=True)
class ConstantSchedule(AbstractSchedule):
    """b(tau) = risk_coef everywhere: risk-sensitive GRPO; 0 is centred GRPO.

    >>> ConstantSchedule(2.0)(torch.tensor([0.0, 1.0])).tolist()
    [2.0, 2.0]
    """

    risk_coef: float

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        return torch.full_like(tau, self.risk_coef)


@final
@dataclass(frozen=True, slots=True)
class LinearSchedule(AbstractSchedule):
    """u(tau) = tau.

    >>> LinearSchedule(2.0, 0.0)(torch.tensor([0.0, 0.25, 1.0])).tolist()
    [2.0, 1.5, 0.0]
    """

    start: float
    end: float

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        return _between(self.start, self.end, tau)


@final
@dataclass(frozen=True, slots=True)
class CosineSchedule(AbstractSchedule):
    """u(tau) = (1 - cos(pi tau)) / 2: flat at both ends.

    >>> [round(b, 4) for b in CosineSchedule(2.0, 0.0)(torch.tensor([0.0, 0.25, 0.5, 1.0])).tolist()]
    [2.0, 1.7071, 1.0, 0.0]
    """

    start: float
    end: float

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        return _between(self.start, self.end, (1 - torch.cos(math.pi * tau)) / 2)


@final
@dataclass(frozen=True, slots=True)
class PowerSchedule(AbstractSchedule):
    """u(tau) = tau^gamma, gamma > 0: above 1 the start lasts longer, below 1 the end does.

    >>> PowerSchedule(2.0, 0.0, gamma=2.0)(torch.tensor([0.0, 0.5, 1.0])).tolist()
    [2.0, 1.5, 0.0]
    """

    start: float
    end: float
    gamma: float = 2.0

    def __post_init__(self) -> None:
        AbstractSchedule.__post_init__(self)
        if self.gamma <= 0:
            raise ArgumentError(f"gamma is {self.gamma}; the power schedule needs gamma > 0")

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        # exp(gamma log tau): `pow` rounds differently at the end of a tensor than inside it.
        return _between(self.start, self.end, torch.exp(self.gamma * torch.log(tau)))


@final
@dataclass(frozen=True, slots=True)
class SigmoidSchedule(AbstractSchedule):
    """u(tau) = (s(k (tau - m)) - s(-k m)) / (s(k (1 - m)) - s(-k m)), s the logistic, k steepness, m midpoint.

    >>> [round(b, 4) for b in SigmoidSchedule(2.0, 0.0)(torch.tensor([0.0, 0.25, 0.5, 1.0])).tolist()]
    [2.0, 1.8598, 1.0, 0.0]
    """

    start: float
    end: float
    steepness: float = 10.0
    midpoint: float = 0.5

    def __post_init__(self) -> None:
        AbstractSchedule.__post_init__(self)
        if not self.steepness > 0:
            raise ArgumentError(f"steepness is {self.steepness}; the sigmoid schedule needs steepness > 0")
        if not 0 <= self.midpoint <= 1:
            raise ArgumentError(f"midpoint is {self.midpoint}; the sigmoid schedule needs a midpoint in [0, 1]")

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        k, m = self.steepness, self.midpoint
        # Endpoints go through the same operations as the tokens, so that u(0) = 0 and u(1) = 1 to the last bit.
        ends = tau.new_tensor([0.0, 1.0])
        low, high = (1 / (1 + torch.exp(-(k * (ends - m))))).unbind()
        return _between(self.start, self.end, (1 / (1 + torch.exp(-(k * (tau - m)))) - low) / (high - low))


@final
@dataclass(frozen=True, slots=True)
class ExponentialSchedule(AbstractSchedule):
    """u(tau) = (1 - e^(-k tau)) / (1 - e^-k), k the steepness: fast at first for k > 0, at last for k < 0.

    >>> [round(b, 4) for b in ExponentialSchedule(2.0, 0.0)(torch.tensor([0.0, 0.5, 1.0])).tolist()]
    [2.0, 0.3649, 0.0]
    """

    start: float
    end: float
    steepness: float = 3.0

    def __post_init__(self) -> None:
        AbstractSchedule.__post_init__(self)
        if not 0 < abs(self.steepness) <= 500:
            raise ArgumentError(f"steepness is {self.steepness}; the exponential schedule needs 0 < |steepness| <= 500")

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        whole = torch.expm1(tau.new_tensor(-self.steepness))
        return _between(self.start, self.end, torch.expm1(-self.steepness * tau) / whole)


@final
@dataclass(frozen=True, slots=True)
class GeometricSchedule(AbstractSchedule):
    """b(tau) = start (end / start)^tau: equal ratios in equal steps. Both ends non-zero and of one sign.

    >>> [round(b, 4) for b in GeometricSchedule(4.0, 1.0)(torch.tensor([0.0, 0.5, 1.0])).tolist()]
    [4.0, 2.0, 1.0]
    """

    start: float
    end: float

    def __post_init__(self) -> None:
        AbstractSchedule.__post_init__(self)
        if not self.start * self.end > 0:
            given = f"geometric schedule from {self.start} to {self.end}"
            raise ArgumentError(f"{given}: both must be non-zero and of one sign; LinearSchedule can reach or cross 0")

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        return torch.exp(tau * math.log(self.end / self.start)) * self.start


@final
@dataclass(frozen=True, slots=True)
class StepSchedule(AbstractSchedule):
    """`start` for tau < midpoint, `end` for tau >= midpoint.

    >>> StepSchedule(2.0, 0.0)(torch.tensor([0.0, 0.49, 0.5, 1.0])).tolist()
    [2.0, 2.0, 0.0, 0.0]
    """

    start: float
    end: float
    midpoint: float = 0.5

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        return torch.where(tau < self.midpoint, tau.new_tensor(self.start), tau.new_tensor(self.end))


@final
@dataclass(frozen=True, slots=True)
class KnotSchedule(AbstractSchedule):
    """Piecewise linear through (tau, risk_coef) pairs with increasing tau; constant before the first, after the last.

    >>> KnotSchedule(((0.25, 2.0), (0.5, 0.0), (1.0, 1.0)))(torch.tensor([0.0, 0.375, 0.5, 0.75])).tolist()
    [2.0, 1.0, 0.0, 0.5]
    """

    knots: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "knots", tuple((float(tau), float(coef)) for tau, coef in self.knots))
        taus = [tau for tau, _ in self.knots]
        if not taus or any(a >= b for a, b in itertools.pairwise(taus)) or taus[0] < 0 or taus[-1] > 1:
            raise ArgumentError(
                f"knots at tau = {taus}; give at least one pair, with strictly increasing tau in [0, 1]"
            )
        if not all(math.isfinite(value) for pair in self.knots for value in pair):
            raise ArgumentError("a knot holds NaN or infinity; give finite (tau, risk_coef) pairs")

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        if len(self.knots) == 1:
            return torch.full_like(tau, self.knots[0][1])
        taus, coefs = tau.new_tensor(self.knots).T.contiguous()
        right = torch.bucketize(tau, taus, right=True).clamp_(1, len(self.knots) - 1)
        left = right - 1
        part = ((tau - taus[left]) / (taus[right] - taus[left])).clamp_(0, 1)
        return torch.add(coefs[left], part * (coefs[right] - coefs[left]))


@final
@dataclass(frozen=True, slots=True)
class ReversedSchedule(AbstractSchedule):
    """b(1 - tau): the other direction of any schedule.

    >>> ReversedSchedule(LinearSchedule(2.0, 0.0))(torch.tensor([0.0, 1.0])).tolist()
    [0.0, 2.0]
    """

    schedule: AbstractSchedule

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        return self.schedule(1 - tau, pass_rate)


@final
@dataclass(frozen=True, slots=True)
class PassRateSchedule(AbstractSchedule):
    """`below` where the group's observed pass rate is < threshold, else `above`. An extension of this project.

    Where hardly anything is solved the early states decide the approach (decreasing); where much is solved the late
    ones lose it (increasing). The default endpoints are multiples of a scale: see `scaled`.

    >>> schedule = PassRateSchedule(0.2, LinearSchedule(2.0, 0.0), LinearSchedule(0.0, 2.0))
    >>> schedule(torch.tensor([0.0, 1.0]), torch.tensor([[0.1], [0.5]])).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    threshold: float = 0.2
    below: AbstractSchedule = LinearSchedule(1.0, 0.0)
    above: AbstractSchedule = LinearSchedule(0.0, 1.0)

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ArgumentError(f"threshold is {self.threshold}; give a pass rate in [0, 1]")

    @property
    def uses_pass_rate(self) -> bool:
        """Always."""
        return True

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        assert pass_rate is not None  # __call__ has refused it
        below, above = self.below(tau, pass_rate), self.above(tau, pass_rate)
        return torch.where(pass_rate < self.threshold, below, above)


@final
@dataclass(frozen=True, slots=True)
class ScaledSchedule(AbstractSchedule):
    """factor * b(tau), for schedules that `scaled` cannot rewrite, such as a user's own."""

    schedule: AbstractSchedule
    factor: float

    def _coefficients(self, tau: Tensor, pass_rate: Tensor | None) -> Tensor:
        return self.schedule(tau, pass_rate) * self.factor


SCHEDULES: dict[str, type[AbstractSchedule]] = {
    "constant": ConstantSchedule,
    "linear": LinearSchedule,
    "cosine": CosineSchedule,
    "power": PowerSchedule,
    "sigmoid": SigmoidSchedule,
    "exponential": ExponentialSchedule,
    "geometric": GeometricSchedule,
    "step": StepSchedule,
    "knots": KnotSchedule,
    "reversed": ReversedSchedule,
    "pass-rate": PassRateSchedule,
}
_TWO_ENDED = (
    LinearSchedule, CosineSchedule, PowerSchedule, SigmoidSchedule, ExponentialSchedule, GeometricSchedule, StepSchedule
)  # fmt: skip


def scaled(schedule: AbstractSchedule, factor: float) -> AbstractSchedule:
    """The schedule with every coefficient multiplied: turns multiples of a calibrated scale into coefficients.

    The family is kept, so that the result still describes itself by its endpoints; a factor 0 gives the constant
    schedule 0, so that a zero scale is centred GRPO bit for bit.

    >>> scaled(LinearSchedule(1.0, 0.0), 3.0)
    LinearSchedule(start=3.0, end=0.0)
    """
    if not math.isfinite(factor):
        raise ArgumentError(f"factor is {factor}; give a finite multiple")
    if factor == 0:
        return ConstantSchedule(0.0)
    match schedule:
        case ConstantSchedule(risk_coef):
            return ConstantSchedule(risk_coef * factor)
        case KnotSchedule(knots):
            return KnotSchedule(tuple((tau, coef * factor) for tau, coef in knots))
        case ReversedSchedule(inner):
            return ReversedSchedule(scaled(inner, factor))
        case PassRateSchedule(threshold, below, above):
            return PassRateSchedule(threshold, scaled(below, factor), scaled(above, factor))
        case _ if isinstance(schedule, _TWO_ENDED):
            return dataclasses.replace(schedule, start=schedule.start * factor, end=schedule.end * factor)
        case _:
            return ScaledSchedule(schedule, factor)
