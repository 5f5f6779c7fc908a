"""Weights against the objectives they are slopes of, in high precision and by plain loops."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from steprs.errors import ArgumentError
from steprs.theory import compare_sheet, curve_sheet, prompt_weights

RATES = [0.001, 0.05, 0.3, 0.5, 0.8, 0.97]


def slow_scale(p: float, b: float) -> float:
    """c(p, b) by its definition in 50 digits."""
    mpmath.mp.dps = 50
    k = mpmath.expm1(mpmath.mpf(b))
    return float(k / (b * (1 + k * mpmath.mpf(p)))) if b else 1.0


def slow_finite_group(p: float, b: float, size: int) -> float:
    """E over K of c(K/G, b) (K/G)(1 - K/G), over p (1 - p), term by term."""
    total = 0.0
    for k in range(size + 1):
        chance = math.comb(size, k) * p**k * (1 - p) ** (size - k)
        total += chance * slow_scale(k / size, b) * (k / size) * (1 - k / size)
    return total / (p * (1 - p))


OBJECTIVES = {
    "standardised": lambda p: 2 * mpmath.asin(mpmath.sqrt(p)),
    "MaxRL": mpmath.log,
    "pass@4": lambda p: 1 - (1 - p) ** 4,
    "pass@16": lambda p: 1 - (1 - p) ** 16,
    "c(3)": lambda p: mpmath.log(1 + p * mpmath.expm1(3)) / 3,
    "c(-2)": lambda p: mpmath.log(1 + p * mpmath.expm1(-2)) / -2,
    "centred": lambda p: p,
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_weight_is_the_slope_of_its_objective(name):
    mpmath.mp.dps = 30
    found = prompt_weights(RATES, [3.0, -2.0], k=[4, 16])[name].tolist()
    wanted = [float(mpmath.diff(OBJECTIVES[name], mpmath.mpf(p))) for p in RATES]
    assert found == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("size", [2, 8, 33])
def test_finite_groups_by_plain_sums(size):
    found = prompt_weights(RATES, [4.0], group_sizes=[size])[f"c_{size}(4)"].tolist()
    assert found == pytest.approx([slow_finite_group(p, 4.0, size) for p in RATES], rel=1e-11)


def test_the_largest_group_is_close_to_an_infinite_one():
    weights = prompt_weights([0.2, 0.5], [2.0], group_sizes=[1024])
    assert weights["c_1024(2)"].tolist() == pytest.approx(weights["c(2)"].tolist(), rel=5e-3)


def test_same_mean_keeps_shapes_and_makes_means_one():
    plain = prompt_weights(RATES, [2.0], group_sizes=[4])
    scaled = prompt_weights(RATES, [2.0], group_sizes=[4], same_mean=True)
    assert plain.keys() == scaled.keys()
    for name, w_N in scaled.items():
        assert float(w_N.mean()) == pytest.approx(1.0, abs=1e-14)
        torch.testing.assert_close(w_N / w_N[0], plain[name] / plain[name][0])


def test_the_curve_table_holds_scale_and_rms():
    sheet = curve_sheet([0.1, 0.6], [2.0], group_sizes=[8], k=[3])
    assert sheet.columns == ("pass rate", "c(2)", "RMS(2)", "c_8(2)", "standardised", "MaxRL", "pass@3")
    for p, row in zip([0.1, 0.6], sheet.rows, strict=True):
        wanted = [p, slow_scale(p, 2), slow_scale(p, 2) * math.sqrt(p * (1 - p)), slow_finite_group(p, 2, 8)]
        wanted += [1 / math.sqrt(p * (1 - p)), 1 / p, 3 * (1 - p) ** 2]
        assert list(row) == pytest.approx(wanted, rel=1e-11)


def test_the_comparison_has_a_row_a_weight():
    sheet = compare_sheet([0.1, 0.6], [2.0], group_sizes=[8], k=[3])
    assert [row[0] for row in sheet.rows] == ["centred", "c(2)", "c_8(2)", "standardised", "MaxRL", "pass@3"]
    assert sheet.rows[4][1:] == pytest.approx((10.0, 1 / 0.6))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([0.0], [1.0]), "strictly between 0 and 1"),
        (([], [1.0]), "strictly between 0 and 1"),
        (([0.5], [float("nan")]), "NaN"),
    ],
)
def test_what_cannot_be_weighed_is_refused(arguments, says):
    with pytest.raises(ArgumentError, match=says):
        prompt_weights(*arguments)


@pytest.mark.parametrize("size", [1, 1025])
def test_group_sizes_have_bounds(size):
    with pytest.raises(ArgumentError, match="group size"):
        prompt_weights([0.5], [1.0], group_sizes=[size])
    with pytest.raises(ArgumentError, match="k >= 1"):
        prompt_weights([0.5], [1.0], k=[0])
