"""How figures look: one colour, dash and marker an arm, and the colours that the page swaps in its dark theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..drawing import COLOURS, DASHES, GRID, INK, MARKERS, MUTED, PAPER, REST
from .escape import escape_terminal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .study import Arm

BASE_DASHES: tuple[Any, ...] = ((0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.2, 1, 1.2)))
# Colour in a file -> custom property of the page, which has a value for each theme.
PROPERTIES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--rule",
    PAPER: "--paper",
    REST: "--rest",
    **{colour: f"--series-{i}" for i, colour in enumerate(COLOURS, 1)},
}
MOST_STYLED = len(COLOURS) * len(DASHES)  # trained arms that can be told apart by their look


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmStyle:
    """How an arm is drawn in every figure.

    Attributes:
        key: names the arm in the page, e.g. `arm-3`.
        label: the arm's, safe to show.
        colour: one of the module's.
        dash: matplotlib's line style.
        marker: matplotlib's marker.
        width: of its lines, in points.
    """

    key: str
    label: str
    colour: str
    dash: Any
    marker: str
    width: float = 1.7

    @property
    def quiet(self) -> bool:
        """One of many: drawn in grey, below the others."""
        return self.colour == MUTED


def arm_styles(arms: Sequence[Arm], baseline: str) -> dict[str, ArmStyle]:
    """A style for every arm: untrained ones in ink, trained ones in colour.

    With more trained arms than can be told apart, all but the baseline are grey.
    """
    styles: dict[str, ArmStyle] = {}
    bases = trained = 0
    crowded = sum(arm.trained for arm in arms) > MOST_STYLED
    for number, arm in enumerate(arms):
        if not arm.trained:
            colour, dash, marker, width = INK, BASE_DASHES[bases % len(BASE_DASHES)], "oXd"[bases % 3], 1.4
            bases += 1
        elif crowded and arm.label != baseline:
            colour, dash, marker, width = MUTED, "-", "o", 0.8
        else:
            lap, place = divmod(trained, len(COLOURS))
            colour, dash, marker, width = COLOURS[place], DASHES[lap], MARKERS[(place + lap) % len(MARKERS)], 1.7
            trained += 1
        styles[arm.label] = ArmStyle(
            key=f"arm-{number}", label=escape_terminal(arm.label), colour=colour, dash=dash, marker=marker, width=width
        )
    return styles


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One drawing.

    Attributes:
        alt: what it shows, for whoever cannot see it; safe to show.
        svg: for the page, without a legend.
        files: as PNG and SVG.
    """

    alt: str
    svg: str
    files: tuple[Path, ...]


def save(figure: Figure, folder: Path, stem: str, *, alt: str, legend: Sequence[ArmStyle] = ()) -> Panel:
    """Write a figure as PNG and SVG, with a legend of its own, and return it for the page, which has one for all.

    Args:
        figure: made on a `canvas`.
        folder: of the files.
        stem: their name without ending.
        alt: what it shows and what its axes are.
        legend: arms that are drawn in it.
    """
    from .inline import inline_svg

    folder.mkdir(parents=True, exist_ok=True)
    for number, artist in enumerate(figure.findobj(lambda artist: artist.get_gid() is not None)):
        artist.set_gid(f"{artist.get_gid()}.{number}")  # one arm has several marks, and an id belongs to one element
    alt = escape_terminal(alt)
    bare = _svg(figure, alt)
    if legend:
        _add_legend(figure, legend)
    files = tuple(folder / f"{stem}.{ending}" for ending in ("png", "svg"))
    # Sizes are in points, so one layout serves every format.
    figure.savefig(files[0], dpi=180, metadata={"Title": alt, "Software": None})
    figure.set_layout_engine("none")
    files[1].write_text(_svg(figure, alt) if legend else bare, encoding="utf-8")
    return Panel(alt=alt, svg=inline_svg(bare, prefix=stem, alt=alt), files=files)


def _svg(figure: Figure, alt: str) -> str:
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Title": alt})
    return text.getvalue()


def _add_legend(figure: Figure, all_styles: Sequence[ArmStyle]) -> None:
    """A legend below the axes, for which the figure grows; grey arms share an entry."""
    from matplotlib.lines import Line2D

    styles = [style for style in all_styles if not style.quiet]
    if grey := [style for style in all_styles if style.quiet]:
        styles.append(replace(grey[0], label=f"{len(grey)} other arms"))
    handles = [
        Line2D([], [], color=s.colour, linestyle=s.dash, marker=s.marker, markersize=4.5, linewidth=s.width)
        for s in styles
    ]
    longest = max(len(style.label) for style in styles)
    columns = max(1, min(len(styles), int(figure.get_figwidth() * 13 // (longest + 7))))
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(styles) // columns) + 0.1)
    # A label that begins with an underscore would be left out.
    labels = [f" {s.label}" if s.label.startswith("_") else s.label for s in styles]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
