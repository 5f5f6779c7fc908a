"""The figures of a context: which numbers go onto which panel, and the sentence under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..drawing import canvas
from . import curves, drawing
from .curves import Curve, Grid
from .diversity import decomposition
from .document import Figure
from .endpoints import Endpoints, cell_estimate
from .frontier import frontier_curves, frontier_names
from .overview import Compared, shared_labels, shared_outcomes
from .reading import smallest_effect
from .results import Measured, primary_of
from .study import Context
from .style import ArmStyle, Panel, arm_styles, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHING = 5
MOST_GRIDS = 12
WIDTH, HEIGHT, NARROW = 4.2, 3.0, 3.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawer:
    """Draws the figures of one context.

    Attributes:
        folder: of the files.
        prefix: of their names; empty where there is one context.
        styles: label -> style, the same in every figure.
    """

    folder: Path
    prefix: str
    styles: Mapping[str, ArmStyle]

    @classmethod
    def of(cls, context: Context, folder: Path, prefix: str = "") -> Drawer:
        """One whose styles are those of the context's arms."""
        return cls(folder=folder, prefix=prefix, styles=arm_styles(context.arms, context.baseline))

    def panel(
        self, stem: str, title: str, alt: str, draw: Callable[[Axes], None], *,
        width: float = WIDTH, height: float = HEIGHT, legend: Sequence[ArmStyle] = (),
    ) -> Panel:  # fmt: skip
        """One drawing on one pair of axes."""
        with canvas(width, height) as figure:
            axes = figure.subplots()
            draw(axes)
            axes.set_title(title)
            return save(figure, self.folder, self.prefix + stem, alt=alt, legend=legend)

    def legend(self, drawn: Sequence[Curve]) -> tuple[ArmStyle, ...]:
        """Styles of the arms in the curves, in the order of the arms."""
        labels = {curve.label for curve in drawn}
        return tuple(style for label, style in self.styles.items() if label in labels)


def forest(drawer: Drawer, context: Context, rows: Sequence[Measured]) -> Figure | None:
    """All trained arms by primary outcome; None without a difference."""
    compared = [row for row in rows if row.difference is not None and row.arm.trained]
    if not compared:
        return None
    panels = []
    outcomes = primary_of(rows)
    for name, heading in outcomes.items():
        pairs = [(row.label, row.difference.get(name) if row.difference else None) for row in compared]
        alt = f"Forest plot: difference in {heading} to {context.baseline}, a row an arm, with 95 % intervals"
        draw = partial(drawing.draw_forest, rows=pairs, styles=drawer.styles)
        height = 0.85 + 0.24 * len(pairs)
        panels.append(
            drawer.panel(f"forest-{_file_name(name)}", heading, alt, draw, width=_width(outcomes), height=height)
        )
    return Figure(
        caption=f"Paired difference to {context.baseline} with its 95 % interval, filled where that excludes 0.",
        panels=tuple(panels),
    )


def tries(drawer: Drawer, context: Context) -> Figure | None:
    """pass@k and distinct right solutions against k; None without evaluations."""
    found = curves.pass_at_k_curves(context.arms)
    if not found:
        return None
    distinct = [curve for curve in curves.distinct_right_curves(context.arms) if len(curve.x) > 1]
    legend = drawer.legend(found)
    panels = [
        drawer.panel(
            "pass_at_k", "pass@k", "Lines: pass@k against the number of tries k, one an arm",
            partial(drawing.draw_tries, curves=found, styles=drawer.styles), legend=legend,
        )
    ]  # fmt: skip
    if distinct:
        panels.append(
            drawer.panel(
                "distinct_right_at_k", "different right solutions among k",
                "Lines: number of different right solutions among k tries, one an arm",
                partial(drawing.draw_tries, curves=distinct, styles=drawer.styles), legend=drawer.legend(distinct),
            )
        )  # fmt: skip
    return Figure(
        caption="Held-out problems, with 95 % bands where there are few arms. A gain at k = 1 that is lost at the "
        "largest k is sharpening.",
        panels=tuple(panels),
        legend=legend,
    )


def frontier(drawer: Drawer, context: Context) -> Figure | None:
    """pass@k and distinct right solutions against pass@1 along checkpoints; None without dev evaluations."""
    panels: list[Panel] = []
    legend: tuple[ArmStyle, ...] = ()
    for name, heading in frontier_names(context).items():
        found = frontier_curves(context, name)
        legend = drawer.legend(found)
        panels.append(
            drawer.panel(
                f"frontier-{_file_name(name)}", heading,
                f"Paths along checkpoints: dev {heading} against dev pass@1, one an arm",
                partial(drawing.draw_frontier, curves=found, styles=drawer.styles), legend=legend,
            )
        )  # fmt: skip
    if not panels:
        return None
    return Figure(
        caption="Each arm's path along its checkpoints on dev problems, mean over seeds: a ring where it starts, a "
        "filled mark where it ends, dots for the ends of single seeds. An arm that is merely slower lies on the "
        "baseline's path; one that trades better lies above it.",
        panels=tuple(panels),
        legend=legend,
    )


def learning(drawer: Drawer, context: Context) -> Figure | None:
    """Reward and entropy in training, pass@1 and pass@k on dev problems; None if nothing was logged."""
    wanted = [
        ("reward", "reward in training", "reward/mean", False),
        ("dev-pass-1", "dev pass@1", "pass@1", True),
        *(
            (f"dev-{_file_name(name)}", f"dev {heading}", name, True)
            for name, heading in frontier_names(context).items()
            if name.startswith("pass")
        ),
        ("entropy", "token entropy in training, nats", "entropy", False),
    ]
    panels: list[Panel] = []
    legend: tuple[ArmStyle, ...] = ()
    for stem, title, key, dev in wanted:
        found = curves.learning_curves(context.arms, key, dev=dev, window=1 if dev else SMOOTHING)
        if not found:
            continue
        legend = drawer.legend(found)
        panels.append(
            drawer.panel(
                f"learning-{stem}", title, f"Lines: {title} by update, one an arm",
                partial(drawing.draw_updates, curves=found, styles=drawer.styles, marker=dev), legend=legend,
            )
        )  # fmt: skip
    if not panels:
        return None
    return Figure(
        caption=f"By update, mean over seeds; bands span the seeds. Curves of training are moving averages over "
        f"{SMOOTHING} updates.",
        panels=tuple(panels),
        legend=legend,
    )


def endpoint_maps(drawer: Drawer, grid: Endpoints, outcomes: Mapping[str, str]) -> Figure:
    """A heat map for each primary outcome: start of the schedule by its end, cells the difference to the baseline."""
    panels = []
    for name, heading in outcomes.items():
        found = [[cell_estimate(grid, (start, end), name) for end in grid.ends] for start in grid.starts]
        values = np.array([[np.nan if e is None else e.value for e in row] for row in found])
        bold = np.array([[e is not None and e.excludes_zero for e in row] for row in found])
        texts = [["" if e is None else drawing.minus(f"{e.value:+.3f}") for e in row] for row in found]
        # Colours no stronger than what could have been told from 0.
        reach = max(smallest_effect(e) for row in found for e in row if e is not None)
        if grid.baseline is not None:
            row, column = grid.starts.index(grid.baseline[0]), grid.ends.index(grid.baseline[1])
            values[row, column], texts[row][column] = 0.0, "baseline"
        draw = partial(
            drawing.draw_endpoints,
            starts=grid.starts,
            ends=grid.ends,
            values=values,
            texts=texts,
            bold=bold,
            reach=reach,
        )
        alt = f"Heat map: difference in {heading} to the baseline by start and end of the schedule"
        height = 0.9 + 0.38 * len(grid.starts)
        stem = f"endpoints-{_file_name(name)}"
        panels.append(drawer.panel(stem, heading, alt, draw, width=_width(outcomes), height=height))
    return Figure(
        caption="Difference to the baseline by the coefficient at the start and at the end of denoising, in multiples "
        "of the risk scale; orange is more, purple less, bold where the interval excludes 0.",
        panels=tuple(panels),
    )


def spent(drawer: Drawer, context: Context) -> Figure | None:
    """The scale of advantages and the mass spent, by pass rate and progress, a panel an arm; None if not logged."""
    scales = curves.grids(context.arms, "scale_grid")[:MOST_GRIDS]
    if not scales:
        return None
    masses: dict[str, Grid] = {grid.label: grid for grid in curves.grids(context.arms, "mass_grid", empty=0.0)}
    norm = drawing.diverging(np.concatenate([grid.values.ravel() for grid in scales]), 1.0, least=0.5, most=1.0)
    panels = []
    for number, grid in enumerate(scales):
        with canvas(NARROW, HEIGHT) as figure:
            drawing.draw_mass_and_scale(figure, grid, masses.get(grid.label), norm)
            figure.suptitle(drawer.styles[grid.label].label, x=0.02, ha="left", fontsize=9.5, fontweight="bold")
            alt = f"Heat map of {grid.label}: scale of the advantage and share of its mass, by pass rate and progress"
            stem = f"{drawer.prefix}scale-and-mass-{number + 1}"
            panels.append(save(figure, drawer.folder, stem, alt=alt))
    left_out = len(curves.grids(context.arms, "scale_grid")) - len(scales)
    more = f" {left_out} more arms are in the table below." if left_out else ""
    return Figure(
        caption="Large numbers and colour: by how much an advantage was multiplied, |A| / |r - mean r|, mean over "
        "updates and seeds; 1 is centred GRPO. Small numbers and grey bars: share of all absolute advantage that was "
        "spent there. A dot: no active token ever fell there." + more,
        panels=tuple(panels),
        narrow=True,
    )


def stacked_entropy(drawer: Drawer, rows: Sequence[Measured]) -> Figure | None:
    """H(sig, ans) as H(ans) + H(sig|ans); None if it was not measured."""
    parts = decomposition(rows)
    if not parts:
        return None
    panel = drawer.panel(
        "entropy-parts", "H(sig, ans) = H(ans) + H(sig|ans)",
        "Stacked bars: entropy of final answers, and of signatures within the same answer, a row an arm",
        partial(drawing.draw_decomposition, parts=parts), height=1.0 + 0.3 * len(parts),
    )  # fmt: skip
    return Figure(
        caption="Blue: entropy of the final answers. Orange: entropy of the ways that lead to the same answer. "
        "Together the entropy of both, mean over problems.",
        panels=(panel,),
    )


def contexts_figure(folder: Path, contexts: Sequence[Compared]) -> Figure | None:
    """Each arm's differences by context, a panel a primary outcome; None if no arm has one."""
    labels = shared_labels(contexts)
    arms = {arm.label: arm for each in contexts for arm in each.context.arms}
    drawer = Drawer(folder=folder, prefix="", styles=arm_styles([*arms.values()], contexts[0].context.baseline))
    legend, panels = tuple(drawer.styles[label] for label in labels), []
    names = [(each.context.name, f"{each.start.value:.2f}" if each.start else "") for each in contexts]
    outcomes = shared_outcomes(contexts)
    for name, heading in outcomes.items():
        series = [(label, [each.difference(label, name) for each in contexts]) for label in labels]
        alt = f"Differences in {heading} to the baseline of each context, one series an arm, with 95 % intervals"
        panels.append(
            drawer.panel(
                f"contexts-{_file_name(name)}", heading, alt,
                partial(drawing.draw_contexts, names=names, series=series, styles=drawer.styles),
                width=_width(outcomes), height=2.6, legend=legend,
            )
        )  # fmt: skip
    if not labels or not panels:
        return None
    return Figure(
        caption="Paired differences to the baseline of the same context with 95 % intervals, filled where they exclude "
        "0. Below a context's name: pass@1 of the policy that training started from.",
        panels=tuple(panels),
        legend=legend,
    )


def _width(panels: Mapping[str, str]) -> float:
    """Three panels share a row of the page, others stand two in a row: type is about as large in both."""
    return NARROW if len(panels) == 3 else WIDTH


def _file_name(statistic: str) -> str:
    """`pass@16` -> `pass-16`."""
    return statistic.replace("@", "-").replace("_", "-")
