"""The house style of figures: a palette, and a canvas that needs no display. matplotlib is imported when one is drawn.

Report and theory draw with it, and neither knows the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import DependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


@contextmanager
def canvas(width: float, height: float, path: Path) -> Iterator[Figure]:
    """A figure in house style, written to `path` at the end; no display and no global state is touched.

    Args:
        width: inches.
        height: inches.
        path: the file; its ending (`.png`, `.svg`) chooses the format.

    Raises:
        DependencyError: matplotlib is missing.
    """
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
