"""The frontier at matched pass@1, against values worked out by hand."""

from __future__ import annotations

import json
import math
import statistics

import numpy as np
import pytest

from steprs.report.frontier import (
    T_QUANTILES,
    frontier_curves,
    frontier_names,
    matched,
    matched_table,
    mean_over_seeds,
    value_at,
)
from steprs.report.runs import read_run
from steprs.report.study import Arm, Context


def path_of(*points):
    return np.array([x for x, _ in points]), np.array([y for _, y in points])


class TestValueAt:
    def test_is_linear_between_checkpoints(self):
        x, y = path_of((0.1, 1.0), (0.2, 0.8), (0.4, 0.2))
        assert value_at(x, y, 0.15) == pytest.approx(0.9)
        assert value_at(x, y, 0.3) == pytest.approx(0.5)

    def test_is_exact_at_checkpoints(self):
        x, y = path_of((0.1, 1.0), (0.2, 0.8), (0.4, 0.2))
        assert [value_at(x, y, where) for where in (0.1, 0.2, 0.4)] == [1.0, 0.8, 0.2]

    def test_is_not_extrapolated(self):
        x, y = path_of((0.1, 1.0), (0.2, 0.8))
        assert math.isnan(value_at(x, y, 0.0999)) and math.isnan(value_at(x, y, 0.2001))

    def test_is_the_mean_of_all_crossings_where_the_path_wavers(self):
        # .25 is passed upwards at y = .85, downwards at .65 and upwards again at .45.
        x, y = path_of((0.2, 0.9), (0.3, 0.8), (0.2, 0.5), (0.3, 0.4))
        assert value_at(x, y, 0.25) == pytest.approx((0.85 + 0.65 + 0.45) / 3)
        # A turning point is one crossing, not one for each piece that ends there.
        assert value_at(x, y, 0.3) == pytest.approx((0.8 + 0.4) / 2)

    def test_of_a_single_checkpoint(self):
        x, y = path_of((0.2, 0.9))
        assert value_at(x, y, 0.2) == 0.9 and math.isnan(value_at(x, y, 0.3))


class TestMeanOverSeeds:
    def test_is_students_interval(self):
        values = [0.1, 0.3, 0.2, 0.4]
        estimate = mean_over_seeds(values)
        half = 3.182446 * statistics.stdev(values) / 2
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
            (0.25, 0.25 - half, 0.25 + half), abs=1e-5
        )
        assert (estimate.seeds, estimate.problems) == (4, 0)

    def test_quantiles_against_the_density(self):
        """Student's t integrated numerically: 97.5 % lie below each quantile."""
        for degrees in (1, 2, 3, 7, 30):
            constant = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
            t = np.linspace(0, T_QUANTILES[degrees - 1], 200_001)
            density = constant * (1 + t**2 / degrees) ** (-(degrees + 1) / 2)
            inside = float(np.sum((density[1:] + density[:-1]) / 2) * (t[1] - t[0]))
            assert inside == pytest.approx(0.475, abs=2e-6), degrees

    def test_two_seeds_have_no_interval(self):
        assert math.isnan(mean_over_seeds([0.1, 0.2]).low)


def run_with(folder, points):
    folder.mkdir(parents=True)
    records = [{"update": 10 * i, "pass@1": x, "pass@16": y, "pass@4": 0.5} for i, (x, y) in enumerate(points)]
    (folder / "dev.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "config.json").write_text("{}")
    return read_run(folder)


@pytest.fixture
def arms(tmp_path):
    line = [(0.2, 0.9), (0.4, 0.7)]
    baseline = Arm(
        label="baseline", trained=True, seeds=(1, 2, 3, 4),
        runs=tuple(run_with(tmp_path / f"base-{i}", line) for i in range(4)),
    )  # fmt: skip
    ends = [(0.3, 0.85), (0.35, 0.75), (0.45, 0.7), (0.2, 0.8)]
    arm = Arm(
        label="arm", trained=True, seeds=(1, 2, 3, 9),
        runs=tuple(run_with(tmp_path / f"arm-{i}", [(0.1, 0.9), end]) for i, end in enumerate(ends)),
    )  # fmt: skip
    return baseline, arm


def test_matched_differences_by_hand(arms):
    baseline, arm = arms
    found = matched(arm, baseline, "pass@16")
    assert found.differences == pytest.approx((0.85 - 0.8, 0.75 - 0.75)), "seed 3 lies above, seed 9 has no partner"
    assert (found.above, found.below, found.last) == (1, 0, (0.3, 0.35, 0.45))


def named_rows(table):
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {(row["arm"], row["at the last pass@1"]): row for row in rows}


def test_matched_table(arms):
    baseline, arm = arms
    table = matched_table(Context(name="", baseline="baseline", arms=(baseline, arm)))
    rows = named_rows(table)
    own = rows["arm", "its own"]
    assert own["seeds within reach"] == "2 of 3, 1 above"
    assert own["which is"] == pytest.approx(1.1 / 3)
    assert own["pass@16"] == pytest.approx(0.025), "two seeds have a mean and no interval"
    # The baseline ends at (.4, .7). Of the arm's paths only seed 3's, (.1, .9) to (.45, .7), reaches .4.
    other = rows["arm", "the baseline's"]
    assert other["seeds within reach"] == "1 of 3, 2 below" and other["which is"] == pytest.approx(0.4)
    assert other["pass@16"] == pytest.approx(0.9 - 0.2 * 0.3 / 0.35 - 0.7)
    assert matched_table(Context(name="", baseline="baseline", arms=(arm,))) is None


def test_of_the_made_up_study(study):
    """pass@1 ends at .2 + 20 rate / 50, pass@16 at .9 - 2 (.51 - rate) + .001 seed; both are linear in the update."""
    context = study.contexts[0]
    assert list(frontier_names(context)) == ["pass@16", "distinct_right@16"]
    rows = named_rows(matched_table(context))
    slower = rows["StepRS increasing", "its own"]
    end = 0.2 + 20 * 0.44 / 50
    at_update = (end - 0.2) / (0.45 / 50)
    expected = (0.9 - 2 * (0.51 - 0.44)) - (0.9 - at_update * (0.51 - 0.45) / 10)
    assert (slower["seeds within reach"], slower["which is"]) == ("2 of 2", pytest.approx(end))
    assert slower["pass@16"] == pytest.approx(expected)
    assert rows["StepRS increasing", "the baseline's"]["seeds within reach"] == "0 of 2, 2 below"

    beyond = rows["StepRS decreasing", "its own"]
    assert beyond["seeds within reach"] == "0 of 3, 3 above" and beyond["pass@16"] is None
    back = rows["StepRS decreasing", "the baseline's"]
    at_update = 20 * 0.45 / 0.5
    expected = (0.9 - at_update * (0.51 - 0.5) / 10) - (0.9 - 2 * (0.51 - 0.45))
    assert back["seeds within reach"] == "3 of 3"
    assert back["pass@16"].value == pytest.approx(expected) and back["pass@16"].seeds == 3


def test_curves_average_the_checkpoints_that_all_seeds_have(arms):
    _, arm = arms
    (curve,) = frontier_curves(Context(name="", baseline="baseline", arms=(arm,)), "pass@16")
    np.testing.assert_allclose(curve.x, [0.1, 1.3 / 4])
    np.testing.assert_allclose(curve.y, [0.9, 3.1 / 4])
    assert curve.points == ((0.3, 0.85), (0.35, 0.75), (0.45, 0.7), (0.2, 0.8))
