"""The drawing of numbers onto matplotlib axes; what the numbers are is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..drawing import COLOURS, INK, MUTED, PAPER, REST
from ..evaluation.statistics import Estimate
from .curves import Curve, Grid
from .escape import escape_terminal
from .runs import Floats
from .style import ArmStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_SPAN = 0.1


def draw_tries(axes: Axes, curves: Sequence[Curve], styles: Mapping[str, ArmStyle]) -> None:
    """Statistics against the number of tries, on a logarithmic axis."""
    axes.set_xscale("log", base=2)
    for curve in curves:
        _line(axes, curve, styles[curve.label], marker=True, band=_band(curves))
    largest = max((int(curve.x[-1]) for curve in curves), default=1)
    ticks = [2**i for i in range(largest.bit_length())]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("k, tries at each problem")
    _at_least(axes)


def draw_updates(axes: Axes, curves: Sequence[Curve], styles: Mapping[str, ArmStyle], *, marker: bool) -> None:
    """Statistics by update."""
    for curve in curves:
        _line(axes, curve, styles[curve.label], marker=marker, band=_band(curves))
    axes.set_xlabel("update")
    axes.locator_params(axis="x", integer=True)
    _at_least(axes)


def draw_frontier(axes: Axes, curves: Sequence[Curve], styles: Mapping[str, ArmStyle]) -> None:
    """Paths along checkpoints: a ring at the start, a filled marker at the end, small dots for the ends of seeds."""
    for curve in curves:
        style = styles[curve.label]
        axes.plot(
            curve.x, curve.y, color=style.colour, linestyle=style.dash, linewidth=style.width, gid=style.key,
            marker=None if style.quiet else ".", markersize=4, alpha=0.5 if style.quiet else 1, zorder=_level(style),
        )  # fmt: skip
        for x, y in () if style.quiet else curve.points:
            axes.plot([x], [y], ".", color=style.colour, markersize=5, alpha=0.45, gid=style.key)
        axes.plot([curve.x[0]], [curve.y[0]], "o", color=style.colour, markerfacecolor=PAPER, markersize=5, zorder=3)
        axes.plot(
            [curve.x[-1]], [curve.y[-1]], style.marker, color=style.colour, gid=style.key, zorder=_level(style),
            markersize=4 if style.quiet else 6.5,
        )  # fmt: skip
    axes.set_xlabel("dev pass@1")
    _at_least(axes)


def draw_forest(axes: Axes, rows: Sequence[tuple[str, Estimate | None]], styles: Mapping[str, ArmStyle]) -> None:
    """Differences with intervals, a row each from the top; filled where the interval excludes 0."""
    axes.axvline(0, color=MUTED, linewidth=0.8)
    for place, (label, estimate) in enumerate(rows):
        if estimate is None:
            continue
        style = styles[label]
        axes.hlines(place, estimate.low, estimate.high, color=style.colour, linewidth=1.6, gid=style.key)
        axes.plot(
            [estimate.value], [place], style.marker, color=style.colour, markersize=6, zorder=3, gid=style.key,
            markerfacecolor=style.colour if estimate.excludes_zero else PAPER, markeredgewidth=1.3,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [_cut(label) for label, _ in rows], color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("difference")
    axes.xaxis.set_major_formatter(_signed)
    axes.locator_params(axis="x", nbins=5)


def draw_contexts(
    axes: Axes, names: Sequence[tuple[str, str]], series: Sequence[tuple[str, Sequence[Estimate | None]]],
    styles: Mapping[str, ArmStyle],
) -> None:  # fmt: skip
    """Differences with intervals by context, one connected series an arm, side by side within a context.

    Args:
        axes: where.
        names: of the contexts, each with what stands below it.
        series: an arm's label and its difference in each context.
        styles: by label.
    """
    axes.axhline(0, color=MUTED, linewidth=0.8)
    for number, (label, estimates) in enumerate(series):
        style = styles[label]
        shift = (number - (len(series) - 1) / 2) * min(0.12, 0.6 / max(len(series), 1))
        known = [(i + shift, e) for i, e in enumerate(estimates) if e is not None]
        axes.plot(
            [x for x, _ in known], [e.value for _, e in known], color=style.colour, linestyle=style.dash,
            linewidth=1.0, alpha=0.6, gid=style.key,
        )  # fmt: skip
        for x, estimate in known:
            axes.vlines(x, estimate.low, estimate.high, color=style.colour, linewidth=1.5, gid=style.key)
            axes.plot(
                [x], [estimate.value], style.marker, color=style.colour, markersize=5.5, zorder=3, gid=style.key,
                markerfacecolor=style.colour if estimate.excludes_zero else PAPER, markeredgewidth=1.2,
            )  # fmt: skip
    axes.set_xticks(range(len(names)), [f"{_cut(name, 16)}\n{below}" for name, below in names], color=INK)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.grid(False, axis="x")
    axes.yaxis.set_major_formatter(_signed)


def draw_decomposition(axes: Axes, parts: Sequence[tuple[str, float, float]]) -> None:
    """Two stacked bars an arm, each with its number."""
    for place, (_, first, second) in enumerate(parts):
        for left, width, colour in ((0.0, first, COLOURS[0]), (first, second, COLOURS[3])):
            axes.barh(place, width, left=left, height=0.62, color=colour, edgecolor=PAPER, linewidth=1)
            axes.text(left + width / 2, place, f"{width:.2f}", ha="center", va="center", fontsize=8, color="white" if (
                colour == COLOURS[0]) else "black")  # fmt: skip
    axes.set_yticks(range(len(parts)), [_cut(label) for label, _, _ in parts], color=INK)
    axes.set_ylim(len(parts) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("nats")


def draw_cells(
    axes: Axes, values: Floats, texts: Sequence[Sequence[str]], norm: Any, colours: str, *, bold: Floats | None = None
) -> Any:
    """A heat map with a text in each cell; cells without a value stay empty.

    Args:
        axes: where.
        values: [rows, columns], the first row at the bottom; NaN is empty.
        texts: of each cell; a second line is smaller.
        norm: from values to the colour map.
        colours: name of the colour map.
        bold: nonzero where the text is bold.
    """
    from matplotlib import colormaps

    mesh = axes.pcolormesh(values, cmap=colours, norm=norm, edgecolors=PAPER, linewidth=1.2)
    axes.grid(False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            axes.text(column + 0.5, row + 0.5, "·", ha="center", va="center", color=REST)
            continue
        red, green, blue, _ = colormaps[colours](norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        colour = "white" if dark else "black"
        first, _, second = texts[row][column].partition("\n")
        weight = "bold" if bold is not None and bold[row, column] else "normal"
        lift = 0.62 if second else 0.5
        axes.text(
            column + 0.5, row + lift, first, ha="center", va="center", fontsize=8, color=colour, fontweight=weight
        )
        if second:
            axes.text(column + 0.5, row + 0.27, second, ha="center", va="center", fontsize=6.5, color=colour)
    return mesh


def draw_endpoints(
    axes: Axes, starts: Sequence[float], ends: Sequence[float], values: Floats, texts: Sequence[Sequence[str]],
    bold: Floats, reach: float,
) -> None:  # fmt: skip
    """Differences by the ends of the schedule, around 0; colours reach to `reach` at least."""
    draw_cells(axes, values, texts, diverging(values, 0.0, least=reach), "PuOr_r", bold=bold)
    axes.set_xticks(np.arange(len(ends)) + 0.5, [f"{end:g}" for end in ends])
    axes.set_yticks(np.arange(len(starts)) + 0.5, [f"{start:g}" for start in starts])
    axes.set_xlabel("end (text finished)")
    axes.set_ylabel("start (all masked)")


def draw_mass_and_scale(figure: Figure, scale: Grid, mass: Grid | None, norm: Any) -> None:
    """The scale of advantages as a heat map; beside it, bars of the mass by pass rate and by progress."""
    rows, columns = scale.values.shape
    parts = figure.add_gridspec(2, 2, width_ratios=(1, 0.16), height_ratios=(0.16, 1))
    axes = figure.add_subplot(parts[1, 0])
    texts = [[_scale_text(scale.values, mass, row, column) for column in range(columns)] for row in range(rows)]
    draw_cells(axes, scale.values, texts, norm, "PuOr_r")
    axes.set_xticks(range(columns + 1), [f"{edge:g}" for edge in scale.column_edges])
    axes.set_yticks(range(rows + 1), [f"{edge:g}" for edge in scale.row_edges])
    axes.set_xlabel("denoising progress")
    axes.set_ylabel("pass rate of the group")
    if mass is None:
        return
    above, beside = figure.add_subplot(parts[0, 0]), figure.add_subplot(parts[1, 1])
    above.bar(np.arange(columns) + 0.5, mass.values.sum(axis=0), width=0.86, color=REST)
    beside.barh(np.arange(rows) + 0.5, mass.values.sum(axis=1), height=0.86, color=REST)
    above.set_xlim(0, columns)
    beside.set_ylim(0, rows)
    for bars in (above, beside):
        bars.set_axis_off()


def diverging(values: Floats, centre: float, *, least: float, most: float = np.inf) -> Any:
    """A norm with `centre` in the middle of a diverging map, which reaches as far on both sides.

    Args:
        values: what is shown; NaN is passed over.
        centre: the neutral value.
        least: the reach is at least this, so that noise is not blown up.
        most: and at most this, so that one odd panel does not bleach the others; what lies beyond has the last colour.
    """
    from matplotlib.colors import Normalize

    known = values[np.isfinite(values)]
    reach = min(max(float(np.abs(known - centre).max()) if known.size else 0.0, least), most)
    return Normalize(centre - reach, centre + reach)


def _signed(value: float, _: float) -> str:
    return minus(f"{value:+g}") if abs(value) > 1e-12 else "0"


def minus(number: str) -> str:
    """A number with the sign that figures and pages use."""
    return number.replace("-", "−")


def _scale_text(values: Floats, mass: Grid | None, row: int, column: int) -> str:
    text = f"{values[row, column]:.2f}"
    return text if mass is None else f"{text}\n{100 * mass.values[row, column]:.0f} %"


def _line(axes: Axes, curve: Curve, style: ArmStyle, *, marker: bool, band: float) -> None:
    alone = len(curve.x) == 1
    axes.plot(
        curve.x,
        curve.y,
        color=style.colour,
        linestyle=style.dash,
        linewidth=style.width,
        marker=style.marker if (marker and not style.quiet) or alone else None,
        alpha=0.5 if style.quiet else 1,
        zorder=_level(style),
        markevery=_at_powers_of_two(curve.x) if not alone and marker and axes.get_xscale() == "log" else None,
        markersize=4.5,
        gid=style.key,
    )
    if curve.low is not None and curve.high is not None and (alone or band):
        if alone:
            axes.vlines(curve.x, curve.low, curve.high, color=style.colour, linewidth=1.4, gid=style.key)
        else:
            axes.fill_between(
                curve.x, curve.low, curve.high, color=style.colour, alpha=band, linewidth=0, gid=style.key
            )


def _level(style: ArmStyle) -> float:
    return 1.9 if style.quiet else 2.1


def _band(curves: Sequence[Curve]) -> float:
    """Opacity of bands: many of them over each other would hide the lines."""
    return 0.14 if len(curves) <= 4 else 0.07 if len(curves) <= 9 else 0.0


def _at_least(axes: Axes) -> None:
    """Widen a vertical axis of nearly equal rates, which would otherwise blow up rounding errors."""
    low, high = axes.get_ylim()
    if high - low < LEAST_SPAN:
        middle = (low + high) / 2
        axes.set_ylim(middle - LEAST_SPAN / 2, middle + LEAST_SPAN / 2)


def _at_powers_of_two(x: Floats) -> list[int]:
    """Indices of 1, 2, 4, ... and of the last value: one marker a tick keeps curves apart."""
    return [i for i, value in enumerate(x) if int(value).bit_count() == 1 or i == len(x) - 1]


def _cut(label: str, limit: int = 24) -> str:
    """A label that is safe to draw and leaves room for it; the tables have the whole of it."""
    shown = escape_terminal(label)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
