"""The numbers behind the curves and grids: pure functions of arms, drawn elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation.diversity import distinct_at_k
from ..evaluation.pass_at_k import pass_at_k
from ..evaluation.result import EvalResult
from ..evaluation.statistics import bootstrap_mean
from .runs import Floats, mean_of_known
from .study import Arm


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One line with its band; `low` and `high` are None where there is no interval; `points` stand beside the line."""

    label: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    points: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Values by pass-rate bin (rows) and progress bin (columns); NaN where nothing fell."""

    label: str
    values: Floats
    row_edges: Floats
    column_edges: Floats


def pass_at_k_curves(arms: Sequence[Arm]) -> list[Curve]:
    """pass@k for powers of two up to the samples of a problem, with 95 % intervals; one-sample arms are points."""
    curves = []
    for arm in (arm for arm in arms if arm.evaluations):
        tries = np.array(_powers_of_two(min(result.samples for result in arm.evaluations)))
        correct_SQ = np.array([[problem.correct for problem in result.problems] for result in arm.evaluations])
        n_S1 = np.array([[result.samples] for result in arm.evaluations])
        curves.append(_with_intervals(arm.label, tries, [pass_at_k(n_S1, correct_SQ, int(k)) for k in tries]))
    return curves


def distinct_right_curves(arms: Sequence[Arm]) -> list[Curve]:
    """Different right solutions among k samples, for powers of two, with 95 % intervals."""
    curves = []
    for arm in (arm for arm in arms if arm.evaluations):
        tries = np.array(_powers_of_two(min(result.samples for result in arm.evaluations)))
        values = [np.array([_distinct_right(result, int(k)) for result in arm.evaluations]) for k in tries]
        curves.append(_with_intervals(arm.label, tries, values))
    return curves


def learning_curves(arms: Sequence[Arm], name: str, *, dev: bool = False, window: int = 1) -> list[Curve]:
    """A logged key by update, averaged over seeds; with more than one seed the band spans them.

    Args:
        arms: the trained ones are used.
        name: key in `metrics.jsonl`, or in `dev.jsonl` with `dev`.
        dev: which of the two files.
        window: centred moving average over this many updates; shorter at the ends.
    """
    curves = []
    for arm in (arm for arm in arms if arm.trained):
        series = [(x, y) for x, y in (run.series(name, dev=dev) for run in arm.runs) if x.size]
        if not series:
            continue
        shared = sorted(set.intersection(*(set(x.tolist()) for x, _ in series)))
        rows = np.array([moving_average(y[np.isin(x, shared)], window) for x, y in series])
        band = len(rows) > 1
        curves.append(
            Curve(
                label=arm.label,
                x=np.array(shared),
                y=rows.mean(axis=0),
                low=rows.min(axis=0) if band else None,
                high=rows.max(axis=0) if band else None,
            )
        )
    return curves


def grids(arms: Sequence[Arm], name: str, *, empty: float | None = None) -> list[Grid]:
    """A logged grid of every trained arm, averaged over updates and seeds; `empty` as in `RunRecord.mean_grid`."""
    found = []
    for arm in arms:
        each = [(run, grid) for run in arm.runs if (grid := run.mean_grid(name, empty=empty)) is not None]
        if not each:
            continue
        mean = mean_of_known(np.array([grid for _, grid in each]))
        run = each[0][0]
        found.append(
            Grid(
                label=arm.label,
                values=mean,
                row_edges=run.grid_edges("grid_pass_rate_edges", mean.shape[0]),
                column_edges=run.grid_edges("grid_progress_edges", mean.shape[1]),
            )
        )
    return found


def moving_average(values: Floats, window: int) -> Floats:
    """Centred mean over `window` values, over fewer at the ends.

    >>> moving_average(np.array([0.0, 3.0, 6.0]), 3).tolist()
    [1.5, 3.0, 4.5]
    """
    half = window // 2
    return np.array([values[max(0, i - half) : i + half + 1].mean() for i in range(len(values))])


def _with_intervals(label: str, tries: Floats, values: Sequence[Floats | float]) -> Curve:
    estimates = [bootstrap_mean(each) for each in values]
    return Curve(
        label=label,
        x=tries.astype(np.float64),
        y=np.array([e.value for e in estimates]),
        low=np.array([e.low for e in estimates]),
        high=np.array([e.high for e in estimates]),
    )


def _distinct_right(result: EvalResult, k: int) -> list[float]:
    return [distinct_at_k(list(problem.solution_counts().values()), k, problem.n) for problem in result.problems]


def _powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... and the largest itself.

    >>> _powers_of_two(12)
    [1, 2, 4, 8, 12]
    """
    return sorted({*(2**i for i in range(largest.bit_length())), largest})
