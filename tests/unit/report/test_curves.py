"""The numbers behind curves, grids and costs, worked out by hand from the made-up runs."""

from __future__ import annotations

import numpy as np
import pytest

from steprs.errors import RunFolderError
from steprs.evaluation.compare import summarise
from steprs.report import curves
from steprs.report.costs import cost_table
from steprs.report.runs import read_run


@pytest.fixture(scope="module")
def context(study):
    return study.contexts[0]


def named(found):
    return {curve.label: curve for curve in found}


def test_pass_at_k(context):
    found = named(curves.pass_at_k_curves(context.arms))
    for label in ("base", "StepRS decreasing"):
        curve, summary = found[label], summarise(context.find(label).evaluations)
        assert curve.x.tolist() == [1, 2, 4, 8, 16]
        for k in (1, 4, 16):
            i, estimate = curve.x.tolist().index(k), summary[f"pass@{k}"]
            assert (curve.y[i], curve.low[i], curve.high[i]) == pytest.approx(
                (estimate.value, estimate.low, estimate.high)
            )
    assert found["base, greedy"].x.tolist() == [1.0]


def test_distinct_right_at_k(context, slow):
    curve = named(curves.distinct_right_curves(context.arms))["StepRS increasing"]
    paths = [run.path for run in context.find("StepRS increasing").runs]
    problems = [[slow.distinct_right_at(p, 4) for p in slow.problems_of(path)] for path in paths]
    assert curve.y[2] == pytest.approx(np.mean(problems))
    assert curve.y[4] == pytest.approx(slow.mean(paths, "distinct right@16"))


def test_learning_curves_average_seeds_and_band_them(context):
    raw = named(curves.learning_curves(context.arms, "reward/mean"))
    smooth = named(curves.learning_curves(context.arms, "reward/mean", window=3))
    dev = named(curves.learning_curves(context.arms, "pass@1", dev=True))
    assert "base" not in raw, "untrained arms have no curve"
    line = 0.45 / 20 * np.arange(1, 21)
    curve = raw["centred GRPO"]
    np.testing.assert_allclose(curve.y, line + 0.02)
    np.testing.assert_allclose([curve.low, curve.high], [line + 0.01, line + 0.03])
    np.testing.assert_allclose(smooth["centred GRPO"].y[[0, 1, -1]], 0.45 / 20 * np.array([1.5, 2.0, 19.5]) + 0.02)
    np.testing.assert_allclose(dev["flat"].x, [0, 10, 20])


def test_grids_average_over_the_updates_that_have_a_value(context):
    scale = curves.grids(context.arms, "scale_grid")[0]
    np.testing.assert_allclose(scale.values[1], 1.25)
    assert np.isnan(scale.values[0, 0]), "never an active token"
    assert scale.row_edges.tolist() == [0, 0.2, 0.4, 0.6, 0.8, 1]
    np.testing.assert_allclose(scale.column_edges, np.linspace(0, 1, 6))
    mass = curves.grids(context.arms, "mass_grid", empty=0.0)[0]
    assert mass.values.sum() == pytest.approx(1.0)


def test_an_empty_share_counts_as_nothing(folder):
    run = read_run(folder / "store/flat-1")
    filled = run.mean_grid("scale_grid", empty=0.0)
    assert filled[1, 1] == pytest.approx(1.25 / 2) and filled[0, 0] == 0.0


def test_costs(context):
    """20 updates of 4 prompts x 8 rollouts x 11 tokens; seeds 2 and 3 scored 200 and 300 tokens an update."""
    table = cost_table(context)
    row = next(dict(zip(table.columns, r, strict=True)) for r in table.rows if r[0] == "StepRS increasing")
    assert row == {
        "arm": "StepRS increasing", "seeds": 2, "updates": 20, "tokens sampled": 20 * 32 * 11, "tokens scored": 5000,
        "scoring forwards": 60, "groups without signal": 0.25, "s in rollouts": 40, "s in updates": 80, "minutes": 2.0,
    }  # fmt: skip
    assert "base" not in [r[0] for r in table.rows]


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_named(folder, tmp_path):
    assert len(read_run(folder / "store/flat-1").metrics) == 20, "the run ends with half a line"
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n{"upd\n{"update": 3}\n')
    with pytest.raises(RunFolderError, match="line 2 is not JSON"):
        read_run(tmp_path)
