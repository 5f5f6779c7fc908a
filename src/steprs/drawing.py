"""The house style of figures: a palette, and a canvas that needs no display. matplotlib is imported when one is drawn.

Whatever draws takes its looks from here, so that report and theory match and neither knows the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import DependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers tell apart; markers and dashes say the same again.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9")
MARKERS = ("o", "s", "D", "v", "P", "^")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)))
INK, MUTED, GRID, PAPER, REST = "#1c2024", "#60646c", "#e2e4e8", "#fdfdfe", "#b3b7bf"
SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": PAPER,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "text.parse_math": False,  # a label may hold a dollar sign
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "steprs",  # the same numbers give the same bytes
}


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """An empty figure in house style; no display and no global state is touched.

    Args:
        width: inches.
        height: inches.

    Raises:
        DependencyError: matplotlib is missing; names the install command.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DependencyError("figures need matplotlib; install it with: pip install 'steprs[plots]'") from None
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
