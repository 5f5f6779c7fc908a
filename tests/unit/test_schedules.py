"""Every family against its formula in plain Python, exactness bit for bit, and refusals."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import pytest
import torch

from steprs.errors import ArgumentError
from steprs.schedules import (
    SCHEDULES,
    AbstractSchedule,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    GeometricSchedule,
    KnotSchedule,
    LinearSchedule,
    PassRateSchedule,
    PowerSchedule,
    ReversedSchedule,
    ScaledSchedule,
    SigmoidSchedule,
    StepSchedule,
    scaled,
)
from steprs.testing.schedules import check_schedule

TWO_ENDED = [
    LinearSchedule,
    CosineSchedule,
    PowerSchedule,
    SigmoidSchedule,
    ExponentialSchedule,
    GeometricSchedule,
    StepSchedule,
]
EVERY = [
    ConstantSchedule(2.0),
    *(family(3.0, 0.5) for family in TWO_ENDED),
    GeometricSchedule(-0.5, -4.0),
    PowerSchedule(0.0, 2.0, gamma=0.3),
    SigmoidSchedule(2.0, -2.0, steepness=30.0, midpoint=0.2),
    ExponentialSchedule(1.0, 0.0, steepness=-4.0),
    KnotSchedule(((0.3, 1.0),)),
    KnotSchedule(((0.1, 1.0), (0.2, -2.0), (0.9, 3.0))),
    ReversedSchedule(PowerSchedule(2.0, 0.0)),
    PassRateSchedule(),
    ReversedSchedule(PassRateSchedule(0.5, LinearSchedule(1.0, 0.0), PassRateSchedule(0.8))),
]


def logistic(x):
    return 1 / (1 + math.exp(-x))


def sigmoid_shape(tau, k=10.0, m=0.5):
    return (logistic(k * (tau - m)) - logistic(-k * m)) / (logistic(k * (1 - m)) - logistic(-k * m))


SHAPES = [
    (LinearSchedule(2.0, -1.0), lambda tau: tau),
    (CosineSchedule(2.0, -1.0), lambda tau: (1 - math.cos(math.pi * tau)) / 2),
    (PowerSchedule(2.0, -1.0, gamma=2.5), lambda tau: tau**2.5),
    (SigmoidSchedule(2.0, -1.0), sigmoid_shape),
    (SigmoidSchedule(2.0, -1.0, steepness=4.0, midpoint=0.8), lambda tau: sigmoid_shape(tau, 4.0, 0.8)),
    (ExponentialSchedule(2.0, -1.0), lambda tau: (1 - math.exp(-3 * tau)) / (1 - math.exp(-3))),
    (StepSchedule(2.0, -1.0, midpoint=0.3), lambda tau: float(tau >= 0.3)),
]


@pytest.mark.parametrize(("schedule", "shape"), SHAPES, ids=lambda value: getattr(value, "describe", lambda: "u")())
def test_formula(schedule, shape):
    for tau in (0.0, 1e-9, 0.1, 0.3, 0.5, 0.77, 1.0):
        assert float(schedule(tau)) == pytest.approx(2.0 - 3.0 * shape(tau), abs=1e-14)


def test_geometric_formula():
    for tau in (0.0, 0.2, 1.0):
        assert float(GeometricSchedule(-4.0, -0.5)(tau)) == pytest.approx(-4.0 * (0.5 / 4) ** tau, rel=1e-15)


def test_knots_are_reached_and_joined_by_lines():
    schedule = KnotSchedule(((0.25, 2.0), (0.5, -1.0), (0.875, 5.0)))
    found = schedule(torch.tensor([0.0, 0.25, 0.375, 0.5, 0.6875, 0.875, 1.0]))
    assert found.tolist() == [2.0, 2.0, 0.5, -1.0, 2.0, 5.0, 5.0]


def test_ends_are_the_endpoints():
    for family in TWO_ENDED:
        schedule = family(3.0, 0.5)
        assert schedule(torch.tensor([0.0, 1.0])).tolist() == pytest.approx([3.0, 0.5], rel=1e-15)


@pytest.mark.parametrize("family", TWO_ENDED)
@pytest.mark.parametrize("coef", [1.0, 0.1, -2.7, 1e-8, 4999.0, 1 / 3])
def test_equal_endpoints_are_the_constant_bit_for_bit(family, coef):
    tau = torch.rand(1003, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tau[:2] = torch.tensor([0.0, 1.0])
    assert torch.equal(family(coef, coef)(tau), ConstantSchedule(coef)(tau))
    assert torch.equal(KnotSchedule(((0.0, coef), (0.4, coef), (1.0, coef)))(tau), ConstantSchedule(coef)(tau))
    assert torch.equal(ReversedSchedule(family(coef, coef))(tau), ConstantSchedule(coef)(tau))


@pytest.mark.parametrize("schedule", EVERY, ids=lambda schedule: schedule.describe())
def test_conformance(schedule):
    check_schedule(schedule)


@pytest.mark.parametrize("schedule", [s for s in EVERY if not s.uses_pass_rate], ids=lambda s: s.describe())
def test_bits_do_not_depend_on_the_position(schedule):
    tau = torch.rand(1001, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    together = schedule(tau)
    assert torch.equal(torch.stack([schedule(one) for one in tau]), together)
    assert torch.equal(torch.cat([schedule(tau[:3]), schedule(tau[3:])]), together)


def test_reversed_is_the_other_direction():
    tau = torch.linspace(0, 1, 9)
    assert torch.equal(ReversedSchedule(LinearSchedule(2.0, 0.0))(tau), LinearSchedule(2.0, 0.0)(1 - tau.double()))


def test_pass_rate_is_strictly_below_the_threshold():
    schedule = PassRateSchedule(0.2, ConstantSchedule(1.0), ConstantSchedule(-1.0))
    assert schedule(0.5, torch.tensor([0.0, 0.1875, 0.2, 1.0], dtype=torch.float64)).tolist() == [1.0, 1.0, -1.0, -1.0]
    with pytest.raises(ArgumentError, match="pass_rate"):
        schedule(0.5)
    with pytest.raises(ArgumentError, match=r"\[0, 1\]"):
        schedule(0.5, 1.5)


def test_pass_rate_default_decreases_where_little_is_solved():
    schedule = PassRateSchedule()
    assert schedule.threshold == 0.2
    assert schedule(torch.tensor([0.0, 1.0]), 0.1).tolist() == [1.0, 0.0]
    assert schedule(torch.tensor([0.0, 1.0]), 0.3).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("schedule", EVERY, ids=lambda schedule: schedule.describe())
def test_scaling_keeps_the_family(schedule):
    tau = torch.linspace(0, 1, 17)
    double = scaled(schedule, -2.0)
    assert type(double) is type(schedule)
    torch.testing.assert_close(double(tau, 0.1), -2 * schedule(tau, 0.1), rtol=1e-14, atol=1e-15)
    assert scaled(schedule, 0.0) == ConstantSchedule(0.0)


@dataclass(frozen=True)
class Wavy(AbstractSchedule):
    """A user's own: needs one method."""

    size: float = 1.0

    def _coefficients(self, tau, pass_rate):
        return torch.sin(7 * tau) * self.size


@dataclass(frozen=True)
class Stateful(AbstractSchedule):
    def _coefficients(self, tau, pass_rate):
        return torch.rand_like(tau)


@dataclass(frozen=True)
class Narrow(AbstractSchedule):
    def _coefficients(self, tau, pass_rate):
        return tau.float()


@dataclass(frozen=True)
class Coupled(AbstractSchedule):
    def _coefficients(self, tau, pass_rate):
        return tau - tau.mean() if tau.ndim < 2 else tau - tau.mean(1, keepdim=True)


@dataclass(frozen=True)
class Mutating(AbstractSchedule):
    def _coefficients(self, tau, pass_rate):
        return tau.mul_(2)


@dataclass(frozen=True)
class Singular(AbstractSchedule):
    def _coefficients(self, tau, pass_rate):
        return 1 / tau


def test_a_users_own_schedule_conforms_and_scales():
    check_schedule(Wavy())
    assert scaled(Wavy(), 3.0) == ScaledSchedule(Wavy(), 3.0)
    assert Wavy(2.0).describe() == "wavy(size=2)"


@pytest.mark.parametrize("broken", [Stateful(), Narrow(), Coupled(), Mutating(), Singular()])
def test_the_conformance_check_can_fail(broken):
    with pytest.raises(AssertionError, match="breaks a rule"):
        check_schedule(broken)


def test_schedules_are_frozen_hashable_configuration():
    assert LinearSchedule(2.0, 0.0) == LinearSchedule(end=0.0, start=2.0)
    assert len({LinearSchedule(2.0, 0.0), LinearSchedule(2.0, 0.0), LinearSchedule(0.0, 2.0)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        LinearSchedule(2.0, 0.0).start = 1.0
    assert set(SCHEDULES.values()) >= {type(schedule) for schedule in EVERY}


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearSchedule(math.nan, 0.0),
        lambda: ConstantSchedule(math.inf),
        lambda: PowerSchedule(1.0, 0.0, gamma=0.0),
        lambda: SigmoidSchedule(1.0, 0.0, steepness=0.0),
        lambda: SigmoidSchedule(1.0, 0.0, midpoint=2.0),
        lambda: ExponentialSchedule(1.0, 0.0, steepness=0.0),
        lambda: GeometricSchedule(1.0, 0.0),
        lambda: GeometricSchedule(1.0, -1.0),
        lambda: KnotSchedule(()),
        lambda: KnotSchedule(((0.5, 1.0), (0.5, 2.0))),
        lambda: KnotSchedule(((0.0, 1.0), (1.1, 2.0))),
        lambda: KnotSchedule(((0.0, math.nan), (1.0, 2.0))),
        lambda: PassRateSchedule(1.5),
        lambda: scaled(LinearSchedule(1.0, 0.0), math.inf),
        lambda: LinearSchedule(1.0, 0.0)(torch.tensor([0.2, math.nan])),
        lambda: LinearSchedule(1.0, 0.0)(-0.1),
    ],
)
def test_what_has_no_meaning_is_refused(make):
    with pytest.raises(ArgumentError):
        make()
