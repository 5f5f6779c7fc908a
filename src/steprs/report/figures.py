"""Figures: first the numbers (pure functions of a study), then the drawing of them. matplotlib, without a display."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DependencyError
from ..evaluation.pass_at_k import pass_at_k
from ..evaluation.statistics import bootstrap_mean
from .runs import Study, mean_of_known

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# Okabe and Ito's palette, which colour-blind readers tell apart; markers and dashes say the same again.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", "--", "-", (0, (6, 1.5)), "-.", (0, (1, 1)), "-")
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "svg.fonttype": "none",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One line with its band; `low` and `high` are None where there is no interval."""

    label: str
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Values by pass-rate bin (rows) and progress bin (columns); NaN where nothing fell."""

    label: str
    values: Floats
    row_edges: Floats
    column_edges: Floats


def pass_at_k_curves(study: Study) -> list[Curve]:
    """pass@k for every k up to the samples of a problem, with 95 % intervals; one-sample arms are points at k = 1."""
    curves = []
    for arm in study.arms:
        if not arm.evaluations:
            continue
        samples = min(result.samples for result in arm.evaluations)
        correct_SQ = np.array([[problem.correct for problem in result.problems] for result in arm.evaluations])
        n_S1 = np.array([[result.samples] for result in arm.evaluations])
        estimates = [bootstrap_mean(pass_at_k(n_S1, correct_SQ, k)) for k in range(1, samples + 1)]
        curves.append(
            Curve(
                label=arm.label,
                x=np.arange(1.0, samples + 1),
                y=np.array([e.value for e in estimates]),
                low=np.array([e.low for e in estimates]),
                high=np.array([e.high for e in estimates]),
            )
        )
    return curves


def learning_curves(study: Study, name: str, *, dev: bool = False, window: int = 1) -> list[Curve]:
    """A logged key by update, averaged over seeds; with more than one seed the band spans them.

    Args:
        study: its trained arms are used.
        name: key in `metrics.jsonl`, or in `dev.jsonl` with `dev`.
        dev: which of the two files.
        window: centred moving average over this many updates; shorter at the ends.
    """
    curves = []
    for arm in (arm for arm in study.arms if arm.trained):
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


def grids(study: Study, name: str, *, empty: float | None = None) -> list[Grid]:
    """A logged grid of every trained arm, averaged over updates and seeds; `empty` as in `RunRecord.mean_grid`."""
    found = []
    for arm in study.arms:
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


def draw_pass_at_k(curves: Sequence[Curve], labels: Sequence[str], path: Path) -> Path:
    """pass@k against k on a logarithmic axis.

    Args:
        curves: one an arm.
        labels: all arms of the study, so that an arm has one colour in every figure.
        path: of the PNG file.
    """
    with _canvas(7.2, 4.6, path) as figure:
        axes = figure.subplots()
        axes.set_xscale("log", base=2)
        for curve in curves:
            _line(axes, curve, labels.index(curve.label), marker=True)
        largest = max((int(curve.x[-1]) for curve in curves), default=1)
        ticks = [2**i for i in range(largest.bit_length())]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xlabel("k, tries at each problem")
        axes.set_ylabel("pass@k on held-out problems")
        if curves:
            axes.legend(loc="best")
            _at_least(axes, 0.1)
    return path


def draw_learning(train: Sequence[Curve], dev: Sequence[Curve], labels: Sequence[str], path: Path) -> Path:
    """Training reward at the left, pass@1 on dev problems at the right; arguments as in `draw_pass_at_k`."""
    with _canvas(9.6, 4.4, path) as figure:
        left, right = figure.subplots(1, 2)
        for axes, curves, title, marker in (
            (left, train, "reward in training", False),
            (right, dev, "dev pass@1", True),
        ):
            for curve in curves:
                _line(axes, curve, labels.index(curve.label), marker=marker)
            axes.set_xlabel("update")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_title(title)
            if curves:
                _at_least(axes, 0.1)
            else:
                axes.text(0.5, 0.5, "nothing logged", transform=axes.transAxes, ha="center", color="#666666")
        handles, names = (left if train else right).get_legend_handles_labels()
        if handles:
            figure.legend(handles, names, loc="outside lower center", ncols=len(handles))
    return path


def draw_grids(grids: Sequence[Grid], path: Path, *, centre: float | None, label: str) -> Path:
    """Heat maps side by side on one colour scale, each cell with its number.

    Args:
        grids: one panel each; at least one.
        path: of the PNG file.
        centre: value in the middle of a diverging scale (1 for an advantage scale), or None for a sequential one.
        label: of the colour bar.
    """
    with _canvas(3.5 * len(grids) + 1.0, 3.8, path) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(grids), sharey=True))
        norm, colours = _colour_scale(np.concatenate([grid.values.ravel() for grid in grids]), centre)
        for axes, grid in zip(panels, grids, strict=True):
            image = axes.imshow(grid.values, origin="lower", cmap=colours, norm=norm, aspect="auto")
            _label_cells(axes, grid, image)
            _edge_ticks(axes, grid)
            axes.set_title(grid.label)
            axes.set_xlabel("denoising progress")
        panels[0].set_ylabel("pass rate of the prompt's group")
        figure.colorbar(image, ax=list(panels), label=label, shrink=0.9)
    return path


def _colour_scale(values: Floats, centre: float | None) -> tuple[Any, str]:
    """A norm and a colour map that grey-scale printing and colour-blind readers keep apart."""
    from matplotlib.colors import Normalize

    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if centre is None:
        return Normalize(0.0, high or 1.0), "cividis"
    reach = max(centre - low, high - centre, 0.1)
    return Normalize(centre - reach, centre + reach), "PuOr_r"


def _label_cells(axes: Axes, grid: Grid, image: Any) -> None:
    axes.grid(False)
    axes.set_facecolor("#c8c8c8")
    for (row, column), value in np.ndenumerate(grid.values):
        if not np.isfinite(value):
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=9, color="white" if dark else "black")


def _edge_ticks(axes: Axes, grid: Grid) -> None:
    """Ticks at the edges of the bins, with the edges' values."""
    rows, columns = grid.values.shape
    axes.set_xticks(np.arange(columns + 1) - 0.5, [f"{edge:g}" for edge in grid.column_edges])
    axes.set_yticks(np.arange(rows + 1) - 0.5, [f"{edge:g}" for edge in grid.row_edges])


def _line(axes: Axes, curve: Curve, number: int, *, marker: bool) -> None:
    colour = COLOURS[number % len(COLOURS)]
    alone = len(curve.x) == 1
    axes.plot(
        curve.x,
        curve.y,
        color=colour,
        linestyle=DASHES[number % len(DASHES)],
        marker=MARKERS[number % len(MARKERS)] if marker or alone else None,
        markevery=_at_powers_of_two(curve.x) if not alone and marker and axes.get_xscale() == "log" else None,
        markersize=5.5,
        linewidth=1.8,
        label=curve.label,
    )
    if curve.low is not None and curve.high is not None:
        if alone:
            axes.vlines(curve.x, curve.low, curve.high, color=colour, linewidth=1.4)
        else:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.13, linewidth=0)


def _at_least(axes: Axes, span: float) -> None:
    """Widen a vertical axis of nearly equal rates, which would otherwise blow up rounding errors."""
    low, high = axes.get_ylim()
    if high - low < span:
        axes.set_ylim(max(low - span / 2, -0.01), max(low - span / 2, -0.01) + span)


def _at_powers_of_two(x: Floats) -> list[int]:
    """Indices of 1, 2, 4, ... and of the last value: one marker a tick keeps curves apart."""
    return [i for i, value in enumerate(x) if int(value).bit_count() == 1 or i == len(x) - 1]


@contextmanager
def _canvas(width: float, height: float, path: Path) -> Iterator[Figure]:
    """A figure in house style, written to `path` at the end; no display and no global state is touched."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DependencyError("figures need matplotlib; install it with: pip install 'steprs[plots]'") from None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
