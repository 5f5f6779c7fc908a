"""Landmarks are where the page says: found again by search, and bounds by rewards that reach for them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from steprs.risk import entropic_advantages
from steprs.theory import coefficient_sheet, rule_sheet


def scale(p, b: float):
    return np.expm1(b) / (b * (1 + p * np.expm1(b)))


@pytest.mark.parametrize("coef", [4.0, 0.7, -2.0])
class TestCoefficients:
    def row(self, coef: float, group_size: int = 8) -> dict[str, float]:
        sheet = coefficient_sheet([coef], group_size=group_size)
        return dict(zip(sheet.columns, sheet.rows[0], strict=True))

    def test_the_crossover_has_weight_one(self, coef):
        assert scale(self.row(coef)["crossover"], coef) == pytest.approx(1.0, abs=1e-12)

    @pytest.mark.parametrize(("name", "power"), [("RMS peak", 0.5), ("mean abs peak", 1.0)])
    def test_peaks_by_search(self, coef, name, power):
        p = np.linspace(0, 1, 200_001)
        highest = p[np.argmax((p * (1 - p)) ** power * scale(p, coef))]
        assert self.row(coef)[name] == pytest.approx(highest, abs=1e-5)

    def test_ends(self, coef):
        row = self.row(coef)
        assert (row["c(0)"], row["c(1)"]) == pytest.approx((scale(0.0, coef), scale(1.0, coef)), rel=1e-12)

    def test_bounds_hold_and_are_reached_by_extreme_rewards(self, coef):
        row = self.row(coef)
        towering = torch.zeros(2, 8, dtype=torch.float64)
        towering[0, 0], towering[1, 0] = 200.0, -200.0
        found = entropic_advantages(towering, coef)
        assert row["least A"] - 1e-12 <= float(found.min()) <= row["least A"] + 1e-6
        assert row["most A"] - 1e-6 <= float(found.max()) <= row["most A"] + 1e-12


def test_a_coefficient_of_zero_has_no_bounds():
    row = coefficient_sheet([0.0]).rows[0]
    assert row == (0.0, 0.5, 0.5, 0.5, 1.0, 1.0, None, None)


def test_rules_do_what_they_promise():
    p0 = 0.2
    coefs = {row[0]: row[1] for row in rule_sheet([p0], weight=3.0, target=0.6).rows}
    tilted = lambda b: p0 * math.exp(b) / (p0 * math.exp(b) + 1 - p0)  # noqa: E731
    assert 1 - tilted(coefs["halve-failure"]) == pytest.approx((1 - p0) / 2)
    assert 1 / (1 + math.exp(coefs["odds"])) == pytest.approx(p0)
    assert math.exp(-coefs["log-inverse"]) == pytest.approx(p0)
    assert scale(0.0, coefs["weight-cap(3)"]) == pytest.approx(3.0)
    assert tilted(coefs["target(0.6)"]) == pytest.approx(0.6)
    assert scale(p0, coefs["crossover"]) == pytest.approx(1.0)
    assert coefs["mass-neutral"] == coefs["crossover"]
    grid = np.linspace(0.01, 10, 100_001)
    assert coefs["max-scale"] == pytest.approx(grid[np.argmax(scale(p0, grid))], abs=1e-3)


def test_a_rule_without_a_solution_is_a_gap_with_its_reason():
    sheet = rule_sheet([0.0])
    cells = dict(sheet.rows)
    assert cells["halve-failure"] is None
    assert cells["weight-cap(4)"] is not None
    assert any("nothing was solved" in note for note in sheet.notes)
