"""The grid of schedule endpoints: what coefficients at the start and at the end of denoising are worth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..evaluation.statistics import Estimate
from .results import Measured
from .tables import Cell, Table

START, END, KIND = "risk.schedule.start", "risk.schedule.end", "risk.schedule.kind"
FEWEST_CELLS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoints:
    """Arms by the ends of their schedules, in multiples of the scale.

    Attributes:
        starts: rows, ascending.
        ends: columns, ascending.
        cells: (start, end) -> the arm there.
        baseline: the cell of the baseline, whose difference is 0; None if it is outside the grid.
    """

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    cells: Mapping[tuple[float, float], Measured]
    baseline: tuple[float, float] | None


def endpoints(rows: Sequence[Measured]) -> Endpoints | None:
    """The largest set of arms that differ in the ends of their schedule alone; None below four cells in two dimensions.

    A coefficient of zero throughout is centred GRPO, whatever the schedule: a baseline with `risk.scale: 0` stands at
    (0, 0).
    """
    groups: dict[str, dict[tuple[float, float], Measured]] = {}
    for row in rows:
        if (where := _ends_of(row.arm.fields)) is not None and row.difference is not None:
            rest = {k: v for k, v in row.arm.fields.items() if k not in {START, END, KIND}}
            groups.setdefault(json.dumps(rest, sort_keys=True), {})[where] = row
    cells = max(groups.values(), key=len, default={})
    baseline = None
    reference = next((row for row in rows if row.difference is None and row.arm.trained), None)
    if reference is not None:
        baseline = (0.0, 0.0) if reference.arm.fields.get("risk.scale") == 0 else _ends_of(reference.arm.fields)
    places = {*cells, *([baseline] if baseline is not None else [])}
    starts, ends = sorted({start for start, _ in places}), sorted({end for _, end in places})
    if len(places) < FEWEST_CELLS or len(starts) < 2 or len(ends) < 2:
        return None
    return Endpoints(starts=tuple(starts), ends=tuple(ends), cells=cells, baseline=baseline)


def endpoint_table(grid: Endpoints, columns: Mapping[str, str]) -> Table:
    """One row a cell, with the differences to the baseline."""
    headings = tuple(columns.values())
    cells: list[tuple[Cell, ...]] = []
    for start in grid.starts:
        for end in grid.ends:
            row = grid.cells.get((start, end))
            if row is not None and row.difference is not None:
                cells.append((row.label, start, end, *(row.difference.get(name) for name in columns)))
    return Table(
        title="difference to the baseline by the ends of the schedule",
        columns=("arm", "start", "end", *headings),
        rows=tuple(cells),
        signed=headings,
    )


def cell_estimate(grid: Endpoints, where: tuple[float, float], name: str) -> Estimate | None:
    """The difference at (start, end); None where no arm is, and at the baseline."""
    row = grid.cells.get(where)
    return None if row is None or row.difference is None else row.difference.get(name)


def _ends_of(fields: Mapping[str, Any]) -> tuple[float, float] | None:
    """(start, end) that an arm's fields name; a constant schedule ends where it starts."""
    start, end = fields.get(START), fields.get(END)
    if fields.get(KIND) == "constant" and start is not None:
        end = start
    if not all(isinstance(value, int | float) for value in (start, end)):
        return None
    return float(start), float(end)  # type: ignore[arg-type]
