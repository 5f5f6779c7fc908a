"""How large the advantages of an arm were, how many tokens had one, and over which denoising progress they lay."""

from __future__ import annotations

import itertools

import numpy as np

from . import curves
from .runs import RunRecord
from .study import Arm, Context
from .tables import Cell, Table

EARLY = 0.25  # of the updates


def spent_table(context: Context) -> Table | None:
    """A row a trained arm, means over updates and seeds; None if nothing was logged."""
    masses = {grid.label: grid for grid in curves.grids(context.arms, "mass_grid", empty=0.0)}
    arms = [arm for arm in context.trained if arm.label in masses]
    if not arms:
        return None
    baseline = context.find(context.baseline)
    size = None if baseline is None else _mean(baseline, "advantage/rms")
    edges = masses[arms[0].label].column_edges
    bins = tuple(f"mass {_short(low)} to {_short(high)}" for low, high in itertools.pairwise(edges))
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        share = masses[arm.label].values.sum(0)
        shares = [float(value) for value in share / share.sum()] if share.sum() > 0 else [None] * len(share)
        own = _mean(arm, "advantage/rms")
        ratio = own / size if own is not None and size else None
        rows.append((
            arm.label, len(arm.runs), ratio, _mean(arm, "advantage/nonzero_frac"),
            _mean(arm, "advantage/nonzero_frac", part=EARLY), *shares,
        ))  # fmt: skip
    return Table(
        title="size and place of the advantages",
        columns=("arm", "seeds", "RMS of the baseline's", "tokens with one", "in early updates", *bins),
        rows=tuple(rows),
        digits={"RMS of the baseline's": 2, "tokens with one": 2, "in early updates": 2, **dict.fromkeys(bins, 2)},
        under="seeds",
        notes=(
            "RMS: of the advantages of active tokens, over the baseline's; where it is far from 1 a difference may be "
            "one of learning rates; older logs lack it. Tokens with one: share whose advantage is not 0, in all "
            f"updates and in the first {EARLY:.0%}. Mass: share of all absolute advantage by progress; an arm "
            "without any in the first columns is silent early in denoising.",
        ),
    )


def _mean(arm: Arm, key: str, *, part: float = 1.0) -> float | None:
    found = [value for run in arm.runs if (value := _logged(run, key, part)) is not None]
    return float(np.mean(found)) if found else None


def _logged(run: RunRecord, key: str, part: float) -> float | None:
    updates, values = run.series(key)
    if not len(updates):
        return None
    kept = values[updates <= max(part * updates[-1], updates[0])]
    return float(kept.mean())


def _short(edge: float) -> str:
    return f"{edge:g}".replace("0.", ".")
