"""Maps of c(p, b(tau)) against loops, also where the coefficient depends on the group."""

from __future__ import annotations

import math

import pytest

from steprs.theory import finite_group_sheet, parse_schedule, schedule_scales, schedule_sheet

RATES, TAUS = [0.05, 0.4, 0.9], [0.0, 0.3, 1.0]
BY_RATE = "pass-rate 0.3 linear 4 0 / linear -1 3"


def slow(p: float, b: float) -> float:
    return 1.0 if b == 0 else math.expm1(b) / (b * (1 + p * math.expm1(b)))


def slow_coefficient(tau: float, rate: float) -> float:
    return 4 - 4 * tau if rate < 0.3 else -1 + 4 * tau


@pytest.mark.parametrize("size", [None, 2, 7])
def test_a_schedule_that_looks_at_the_group(size):
    found = schedule_scales(parse_schedule(BY_RATE), RATES, TAUS, group_size=size).tolist()
    for p, row in zip(RATES, found, strict=True):
        for tau, value in zip(TAUS, row, strict=True):
            if size is None:
                wanted = slow(p, slow_coefficient(tau, p))
            else:
                wanted = sum(
                    math.comb(size, k) * p**k * (1 - p) ** (size - k) * (k / size) * (1 - k / size)
                    * slow(k / size, slow_coefficient(tau, k / size))
                    for k in range(1, size)
                ) / (p * (1 - p))  # fmt: skip
            assert value == pytest.approx(wanted, rel=1e-11)


def test_the_map_of_a_schedule():
    sheet = schedule_sheet(parse_schedule("linear 4 0"), RATES, TAUS)
    assert sheet.rows[0] == ("risk_coef", 4.0, pytest.approx(2.8), 0.0)
    for p, row in zip(RATES, sheet.rows[1:], strict=True):
        assert row[0] == f"c, p={p:g}"
        assert list(row[1:]) == pytest.approx([slow(p, 4 - 4 * tau) for tau in TAUS], rel=1e-12)


def test_the_map_shows_the_coefficient_each_pass_rate_gets():
    sheet = schedule_sheet(parse_schedule(BY_RATE), [0.1, 0.5], TAUS)
    assert [row[1:] for row in sheet.rows[:2]] == [
        pytest.approx((4.0, 2.8, 0.0)), pytest.approx((-1.0, 0.2, 3.0))
    ]  # fmt: skip


def test_the_finite_group_table_has_a_row_a_progress_and_rate():
    sheet = finite_group_sheet(parse_schedule("linear 4 0"), [0.1, 0.5], [2, 4], [0.0, 1.0])
    assert [row[:2] for row in sheet.rows] == [(0.0, 0.1), (0.0, 0.5), (1.0, 0.1), (1.0, 0.5)]
    assert sheet.rows[0][2] == pytest.approx(slow(0.1, 4))
    # Groups of two: only K = 1 counts, c(1/2, b) (1/2)(1/2) 2 p (1 - p) / (p (1 - p)).
    assert sheet.rows[0][3] == pytest.approx(slow(0.5, 4) / 2)
    assert sheet.rows[2][3:] == pytest.approx((1 / 2, 3 / 4))
