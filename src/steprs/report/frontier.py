"""The frontier along checkpoints: what an arm has of pass@k at the pass@1 that it has reached.

A gain of pass@k that comes with a lower pass@1 may be nothing but slower progress on the same curve. So each arm's last
checkpoint is compared with the baseline's curve at the arm's own pass@1, seed by seed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation.statistics import Estimate
from .curves import Curve
from .runs import Floats, RunRecord
from .study import Arm, Context
from .tables import Cell, Table

# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
T_QUANTILES = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
)  # fmt: skip
SEEDS_FOR_INTERVAL = 3


def frontier_names(context: Context) -> dict[str, str]:
    """Statistic -> heading of what is held against pass@1: pass@k and distinct right solutions at the largest k."""
    keys = {key for arm in context.trained for run in arm.runs for record in run.dev for key in record}
    named = {}
    for stem, heading in (("pass", "pass"), ("distinct_right", "distinct right")):
        tries = [int(found[1]) for key in keys if (found := re.fullmatch(rf"{stem}@(\d+)", key)) and int(found[1]) > 1]
        if tries:
            named[f"{stem}@{max(tries)}"] = f"{heading}@{max(tries)}"
    return named


def path(run: RunRecord, name: str) -> tuple[Floats, Floats, Floats]:
    """(updates, pass@1, statistic) of a run's dev evaluations that have both."""
    records = [r for r in run.dev if r.get("pass@1") is not None and r.get(name) is not None]
    rows = np.array([[r["update"], r["pass@1"], r[name]] for r in records], dtype=np.float64).reshape(-1, 3)
    return rows[:, 0], rows[:, 1], rows[:, 2]


def value_at(x: Floats, y: Floats, where: float) -> float:
    """y of the path (x, y) at x = `where`: linear between consecutive points, the mean of all crossings.

    pass@1 wavers along checkpoints, so a path can pass a value more than once; the mean of the crossings prefers
    neither an early nor a late one.

    Returns:
        NaN where the path never reaches `where`: nothing is extrapolated.

    >>> value_at(np.array([0.1, 0.3]), np.array([0.8, 0.6]), 0.2)
    0.7
    """
    crossings: dict[float, float] = {}  # position along the path -> y; a shared end of two pieces counts once
    for i in range(len(x)):
        if x[i] == where:
            crossings[float(i)] = float(y[i])
        if i + 1 < len(x) and min(x[i], x[i + 1]) < where < max(x[i], x[i + 1]):
            share = (where - x[i]) / (x[i + 1] - x[i])
            crossings[i + float(share)] = float(y[i] + share * (y[i + 1] - y[i]))
    return float(np.mean(list(crossings.values()))) if crossings else float("nan")


def mean_over_seeds(values: Sequence[float]) -> Estimate:
    """The mean with a 95 % interval of Student's t over seeds; no interval (NaN) below three.

    >>> estimate = mean_over_seeds([1.0, 2.0, 3.0])
    >>> round(estimate.low, 3), estimate.value, round(estimate.high, 3)
    (-0.484, 2.0, 4.484)
    """
    n = len(values)
    mean = float(np.mean(values))
    half = float("nan")
    if n >= SEEDS_FOR_INTERVAL:
        quantile = T_QUANTILES[min(n - 1, len(T_QUANTILES)) - 1]
        half = quantile * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Estimate(value=mean, low=mean - half, high=mean + half, level=0.95, problems=0, seeds=n)


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """The last checkpoints of one arm against the paths of another.

    Attributes:
        differences: one minus the other at the pass@1 of one's last checkpoint, for each seed whose path reaches it.
        above, below: seeds in which that pass@1 lies outside the other's path.
        last: pass@1 of the last checkpoints, for every seed compared.
    """

    differences: tuple[float, ...]
    above: int
    below: int
    last: tuple[float, ...]


def matched(one: Arm, other: Arm, name: str) -> Matched:
    """Compare one's last checkpoints with the other's paths, seed by seed; seeds that only one has are left out."""
    others = dict(zip(other.seeds, other.runs, strict=True))
    differences, last = [], []
    above = below = 0
    for seed, run in zip(one.seeds, one.runs, strict=True):
        _, x, y = path(run, name)
        _, other_x, other_y = path(others[seed], name) if seed in others else (x[:0],) * 3
        if not x.size or not other_x.size:
            continue
        last.append(float(x[-1]))
        above += int(x[-1] > other_x.max())
        below += int(x[-1] < other_x.min())
        if not math.isnan(at_same := value_at(other_x, other_y, float(x[-1]))):
            differences.append(float(y[-1]) - at_same)
    return Matched(differences=tuple(differences), above=above, below=below, last=tuple(last))


def matched_table(context: Context) -> Table | None:
    """What each arm has at matched pass@1, minus the baseline; None without dev evaluations of both.

    Two rows an arm: at the pass@1 where the arm ended, and at the one where the baseline ended. An arm that went beyond
    the baseline can be compared at the second only, one that stayed behind at the first only.
    """
    baseline = context.find(context.baseline)
    names = frontier_names(context)
    if baseline is None or not baseline.trained or not names:
        return None
    cells: list[tuple[Cell, ...]] = []
    for arm in context.trained:
        if arm is baseline:
            continue
        at_its_own = [matched(arm, baseline, name) for name in names]
        at_the_baselines = [_reversed(matched(baseline, arm, name)) for name in names]
        for where, each in (("its own", at_its_own), ("the baseline's", at_the_baselines)):
            if each[0].last:
                last = float(np.mean(each[0].last))
                cells.append((arm.label, where, last, _reach(each[0]), *(_cell(found.differences) for found in each)))
    if not cells:
        return None
    headings = tuple(names.values())
    return Table(
        title=f"difference to {context.baseline} at the same dev pass@1",
        columns=("arm", "at the last pass@1", "which is", "seeds within reach", *headings),
        rows=tuple(cells),
        signed=headings,
        notes=(
            "Seed by seed: the last checkpoint of the one against the path of the other at the same pass@1, linear "
            "between checkpoints (the mean where a path passes it more than once). Nothing is extrapolated: in seeds "
            "counted as above or below, the arm lies outside what both reached. [95 % interval of Student's t over "
            "seeds], from three seeds on.",
        ),
    )


def _reversed(found: Matched) -> Matched:
    """The same comparison told from the other arm's side."""
    differences = tuple(-value for value in found.differences)
    return Matched(differences=differences, above=found.below, below=found.above, last=found.last)


def frontier_curves(context: Context, name: str) -> list[Curve]:
    """One path an arm: pass@1 (x) and the statistic (y) along checkpoints, both averaged over seeds."""
    curves = []
    for arm in context.trained:
        paths = [p for p in (path(run, name) for run in arm.runs) if p[0].size]
        if not paths:
            continue
        shared = sorted(set.intersection(*(set(updates.tolist()) for updates, _, _ in paths)))
        kept = [np.isin(updates, shared) for updates, _, _ in paths]
        x = np.array([p[1][k] for p, k in zip(paths, kept, strict=True)])
        y = np.array([p[2][k] for p, k in zip(paths, kept, strict=True)])
        ends = tuple((float(p[1][-1]), float(p[2][-1])) for p in paths) if len(paths) > 1 else ()
        curves.append(Curve(label=arm.label, x=x.mean(axis=0), y=y.mean(axis=0), points=ends))
    return curves


def _reach(found: Matched) -> str:
    """How many seeds could be compared, and where the others lie."""
    outside = [f"{count} {where}" for count, where in ((found.above, "above"), (found.below, "below")) if count]
    return ", ".join([f"{len(found.differences)} of {len(found.last)}", *outside])


def _cell(values: Sequence[float]) -> Cell:
    if not values:
        return None
    estimate = mean_over_seeds(values)
    return estimate if len(values) >= SEEDS_FOR_INTERVAL else estimate.value
