"""`steprs rescore`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .common import Format, split_overrides

if TYPE_CHECKING:
    from ..build.rescoring import Rescored
    from ..report.tables import Table

COLUMNS = {
    "mean |A|": "advantage/abs_mean",
    "RMS / centred": "rms_ratio",
    "at cap": "risk/cap_share",
    "correlation": "correlation",
    "relative change": "relative_change",
    "dead groups": "groups/dead",
}
GRIDS = {
    "share of |A|, by pass rate of the group (rows) and denoising progress (columns)": "mass_grid",
    "mean |A| over centred, in the same cells": "scale_grid",
}


def rescore(
    run: Path = typer.Argument(..., help="A run folder trained with train.store_rollouts."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings, e.g. risk.schedule.end=1."),
    schedule: str = typer.Option(None, metavar="SCHEDULE", help="In place of risk.schedule, absolute: 'linear 4 0'."),
    control: str = typer.Option(None, metavar="CONTROL", help="Short for risk.control=CONTROL."),
    format: Format = typer.Option(Format.text, help="How the tables are printed; csv has the first one."),
    output: Path = typer.Option(None, "-o", "--output", metavar="DIR", help="For the advantage tensors and a JSON."),
) -> None:
    """Weigh a run's stored rollouts under other risk settings.

    Nothing is trained: where the advantage would have gone, how large it would have been, and how far it is from the
    run's own. Settings not named are the run's.
    """
    words = split_overrides(overrides or []) + ([f"risk.control={control}"] if control else [])
    from .. import build

    if schedule is None:
        found = build.rescore(run, words)
    else:
        from ..theory.arms import parse_schedule

        found = build.rescore(run, words, schedule=parse_schedule(schedule))
    _print(found, format)
    if output is not None:
        found.save(output)
        typer.echo(f"advantages and JSON: {output}", err=True)


def _print(found: Rescored, format: Format) -> None:
    import json

    if format is Format.json:
        typer.echo(json.dumps(found.to_json(), indent=1, allow_nan=False))
        return
    tables = [_summary(found)]
    if format is not Format.csv:
        mean = found.mean()
        tables += [_grid(title, mean[name]) for title, name in GRIDS.items()]
    typer.echo("\n\n".join(table.render(format.value) for table in tables))


def _summary(found: Rescored) -> Table:
    """One row an update, and their mean."""
    from ..report.tables import Table

    def cells(metrics: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(metrics[name] for name in COLUMNS.values())

    rows = [(str(update.update), *cells(update.metrics)) for update in found.updates]
    return Table(
        title=f"{found.run}: {found.schedule}, control {found.control}",
        columns=("update", *COLUMNS),
        rows=(*rows, ("mean", *cells(found.mean()))),
        notes=(
            f"correlation and relative change: with the run's own advantages ({found.own_schedule}, control "
            f"{found.own_control})",
        ),
    )


def _grid(title: str, values: Sequence[Sequence[float | None]]) -> Table:
    from ..report.tables import Table

    edges = [f"{i / len(values):g}-{(i + 1) / len(values):g}" for i in range(len(values))]
    rows = tuple((edge, *row) for edge, row in zip(edges, values, strict=True))
    return Table(title=title, columns=("pass rate \\ progress", *edges), rows=rows)
