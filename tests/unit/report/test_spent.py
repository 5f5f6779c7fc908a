"""Size and place of advantages, from metrics written down by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from steprs.report.runs import RunRecord
from steprs.report.spent import spent_table
from steprs.report.study import Arm, Context


def run(rms: list[float], frac: list[float], mass: list[list[list[float]]]) -> RunRecord:
    metrics = tuple(
        {"update": n + 1, "advantage/rms": r, "advantage/nonzero_frac": f, "mass_grid": m}
        for n, (r, f, m) in enumerate(zip(rms, frac, mass, strict=True))
    )
    return RunRecord(path=Path("run"), config={}, metrics=metrics, dev=(), outcome={}, evaluation=None)


def arm(label: str, *runs: RunRecord) -> Arm:
    return Arm(label=label, trained=True, runs=runs, seeds=tuple(range(len(runs))))


EVEN = [[[0.25, 0.25], [0.25, 0.25]]] * 4


@pytest.fixture
def context() -> Context:
    base = arm("base line", run([0.5] * 4, [1.0] * 4, EVEN), run([0.3] * 4, [0.8] * 4, EVEN))
    late = arm(
        "late",
        run([0.2] * 4, [0.0, 0.5, 0.5, 1.0], [[[None, 0.0], [0.0, 0.0]], *[[[None, 0.5], [0.0, 0.5]]] * 3]),  # type: ignore[list-item]
    )
    silent = arm("silent", run([0.0] * 4, [0.0] * 4, [[[0.0, 0.0], [0.0, 0.0]]] * 4))
    unlogged = arm("unlogged", RunRecord(path=Path("x"), config={}, metrics=(), dev=(), outcome={}, evaluation=None))
    return Context(name="", baseline="base line", arms=(base, late, silent, unlogged))


def test_means_over_updates_and_seeds_as_shares_of_the_baseline(context: Context) -> None:
    table = spent_table(context)
    assert table is not None
    assert table.columns[2:] == (
        "RMS of the baseline's", "tokens with one", "in early updates", "mass 0 to .5", "mass .5 to 1"
    )  # fmt: skip
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["base line"] == pytest.approx((2, 1.0, 0.9, 0.9, 0.5, 0.5))
    assert rows["late"] == pytest.approx((1, 0.5, 0.5, 0.0, 0.0, 1.0)), "the first of four updates is the early quarter"
    assert rows["silent"] == (1, 0.0, 0.0, 0.0, None, None), "no mass is not all of it in the first column"
    assert "unlogged" not in rows


def test_without_a_baseline_sizes_are_not_compared(context: Context) -> None:
    table = spent_table(Context(name="", baseline="gone", arms=context.arms))
    assert table is not None and {row[2] for row in table.rows} == {None}


def test_nothing_logged_is_no_table(context: Context) -> None:
    assert spent_table(Context(name="", baseline="unlogged", arms=context.arms[-1:])) is None
