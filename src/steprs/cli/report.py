"""`steprs report`."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    sources: list[Path] = typer.Argument(..., metavar="RUNS_OR_STUDY", help="One study's folder, or run folders."),
    output: Path = typer.Option(
        None, "-o", "--output", metavar="DIR", help="Where it is written; the study's folder, or report/, by default."
    ),
    baseline: str = typer.Option(
        None, metavar="LABEL", help="The arm to compare with; the study's own, or the first run, by default."
    ),
) -> None:
    """Make tables, figures and one page from folders alone.

    Run folders that differ in their seed only are one arm. Nothing is trained or evaluated, and torch is not needed.
    """
    from ..report.terminal import show_report
    from ..report.write import write_report

    show_report(write_report(list(sources), output, baseline=baseline))
