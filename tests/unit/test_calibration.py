"""The table of the method page, and each rule's promise measured on its own result."""

from __future__ import annotations

import math

import pytest
import torch

from steprs.calibration import RULES, calibrate_risk
from steprs.errors import ArgumentError, CalibrationError
from steprs.risk import risk_scale, tilt

RATES = (0.05, 0.10, 0.25, 0.50, 0.75, 0.90)
TABLE = {
    "halve-failure": (3.045, 2.398, 1.609, 1.099, 0.847, 0.747),
    "odds": (2.944, 2.197, 1.099, 0.0, -1.099, -2.197),
    "log-inverse": (2.996, 2.303, 1.386, 0.693, 0.288, 0.105),
    "max-scale": (4.191, 3.189, 1.632, 0.0, -1.632, -3.189),
    "crossover": (20.0, 9.995, 3.594, 0.0, -3.594, -9.995),
}


@pytest.mark.parametrize("rule", TABLE)
def test_table(rule):
    assert [calibrate_risk(p, rule) for p in RATES] == pytest.approx(TABLE[rule], abs=6e-4)


@pytest.mark.parametrize(("weight", "wanted"), [(2.0, 1.256), (3.0, 1.904), (4.0, 2.337), (8.0, 3.315)])
def test_weight_cap_table(weight, wanted):
    assert calibrate_risk(0.3, "weight-cap", weight=weight) == pytest.approx(wanted, abs=6e-4)


@pytest.mark.parametrize("p", [1e-6, 0.003, 0.3, 0.4999999, 0.62, 0.97])
def test_each_rule_keeps_its_promise(p):
    b = calibrate_risk(p, "halve-failure", clip=None)
    assert 1 - float(tilt(p, b)) == pytest.approx((1 - p) / 2, rel=1e-12)
    assert 1 / math.expm1(b) == pytest.approx(p, rel=1e-12)
    assert calibrate_risk(p, "log-inverse") == pytest.approx(-math.log(p), rel=1e-14)
    assert float(tilt(p, calibrate_risk(p, "odds"))) == pytest.approx(0.5, rel=1e-12)
    crossing = calibrate_risk(p, "crossover")
    assert crossing != 0
    assert float(risk_scale(p, crossing)) == pytest.approx(1.0, rel=1e-9)
    peak = calibrate_risk(p, "max-scale")
    top = float(risk_scale(p, peak))
    assert all(float(risk_scale(p, peak + step)) <= top * (1 + 1e-15) for step in (-0.3, -1e-3, 1e-3, 0.3))
    assert float(tilt(p, calibrate_risk(p, "target", target=0.8))) == pytest.approx(0.8, rel=1e-9)


@pytest.mark.parametrize("weight", [1e-3, 0.5, 0.999, 1.001, 2.0, 50.0, 1e100])
def test_weight_cap_attains_its_weight(weight):
    b = calibrate_risk(0.3, "weight-cap", weight=weight)
    assert math.expm1(b) / b == pytest.approx(weight, rel=1e-10)


def test_weight_one_is_no_risk():
    assert calibrate_risk(0.3, "weight-cap", weight=1.0) == 0.0


def mass_gained(rates, b):
    rates = torch.tensor(rates, dtype=torch.float64)
    return float((rates * (1 - rates) * (risk_scale(rates, b) - 1)).sum())


@pytest.mark.parametrize("rates", [[0.1, 0.3, 0.5], [0.9, 0.8, 0.95], [0.0, 1.0, 0.25], [0.05, 0.6], [0.1, 0.9, 0.2]])
def test_mass_neutral_keeps_the_mass_with_the_nearest_root(rates):
    b = calibrate_risk(torch.tensor(rates, dtype=torch.float64), "mass-neutral")
    mass = sum(p * (1 - p) for p in rates)
    assert b != 0
    assert abs(mass_gained(rates, b)) <= 1e-10 * mass
    sign = math.copysign(1, mass_gained(rates, b * 0.5))
    assert all(mass_gained(rates, b * part) * sign > 0 for part in (0.01, 0.1, 0.9, 0.999))
    assert all(mass_gained(rates, -b * part) * mass_gained(rates, -b * 1e-3) > 0 for part in (0.01, 0.1, 0.9, 0.999))


def test_mass_neutral_of_one_number_is_the_crossover():
    assert calibrate_risk(0.3, "mass-neutral") == calibrate_risk(0.3, "crossover")
    same = torch.full((5,), 0.3, dtype=torch.float64)
    assert calibrate_risk(same, "mass-neutral") == pytest.approx(calibrate_risk(0.3, "crossover"), rel=1e-9)
    assert calibrate_risk(torch.full((5,), 0.5), "mass-neutral") == 0.0


def test_vectors_are_pooled_by_their_mean():
    for rule in ("halve-failure", "odds", "log-inverse", "max-scale", "crossover"):
        pooled = calibrate_risk(torch.tensor([0.0, 0.25, 0.5], dtype=torch.float64), rule, clip=None)
        assert pooled == calibrate_risk(0.25, rule, clip=None)


def test_clip_acts_on_the_size_and_by_default_for_one_rule():
    assert calibrate_risk(0.001) == 4.0
    assert calibrate_risk(1.0) == pytest.approx(math.log(2))
    assert calibrate_risk(0.001, clip=None) == pytest.approx(math.log(1001))
    assert calibrate_risk(0.999, "odds") == pytest.approx(-math.log(999))
    assert calibrate_risk(0.999, "odds", clip=(0.5, 4.0)) == -4.0
    assert calibrate_risk(0.52, "odds", clip=(0.5, 4.0)) == -0.5
    with pytest.raises(ArgumentError, match="clip"):
        calibrate_risk(0.5, clip=(4.0, 0.5))


@pytest.mark.parametrize("rule", ["halve-failure", "odds", "log-inverse", "max-scale", "crossover", "mass-neutral"])
def test_nothing_solved_has_no_coefficient(rule):
    with pytest.raises(CalibrationError):
        calibrate_risk(0.0, rule)
    with pytest.raises(CalibrationError):
        calibrate_risk(torch.zeros(4), rule)


@pytest.mark.parametrize("rule", ["odds", "max-scale", "crossover", "mass-neutral"])
def test_everything_solved_has_none_for_the_symmetric_rules(rule):
    with pytest.raises(CalibrationError):
        calibrate_risk(1.0, rule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5, "halve-failures"), "Did you mean 'halve-failure'"),
        ((1.5, "odds"), r"\[0, 1\]"),
        ((math.nan, "odds"), r"\[0, 1\]"),
        ((0.5, "target"), "needs target"),
        ((0.5, "weight-cap"), "needs weight"),
    ],
)
def test_misuse_is_named(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        calibrate_risk(*arguments)
    with pytest.raises(ArgumentError, match="no meaning"):
        calibrate_risk(0.5, "odds", target=0.3)
    with pytest.raises(ArgumentError, match="strictly between"):
        calibrate_risk(0.5, "target", target=1.0)
    with pytest.raises(ArgumentError, match="weight"):
        calibrate_risk(0.5, "weight-cap", weight=0.0)
    with pytest.raises(CalibrationError):
        calibrate_risk(0.0, "target", target=0.5)


def test_every_rule_is_reachable():
    inputs = {"target": {"target": 0.6}, "weight-cap": {"weight": 2.0}}
    assert all(math.isfinite(calibrate_risk(0.3, rule, **inputs.get(rule, {}))) for rule in RULES)
