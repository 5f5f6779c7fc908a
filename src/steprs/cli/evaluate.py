"""`steprs eval`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer

from .common import Format, Which, interruptible, split_overrides


class Split(StrEnum):
    """Problems to evaluate on; `test` was never seen by training or by the choice of a checkpoint."""

    train = "train"
    dev = "dev"
    test = "test"


def evaluate(
    target: str = typer.Argument(..., metavar="RUN_OR_POLICY", help="A run folder (its best checkpoint) or a policy."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings, e.g. eval.samples=32."),
    split: Split = typer.Option(Split.test, help="Which problems."),
    checkpoint: Which = typer.Option(Which.best, help="Of a run: the best by pass@1 on dev, or the last."),
    format: Format = typer.Option(Format.text, help="How the table is printed."),
    compare: str = typer.Option(
        None, metavar="OTHER", help="A second run or policy; paired bootstrap of the difference."
    ),
    output: Path = typer.Option(None, "-o", "--output", metavar="FILE", help="Where the result is written as JSON."),
    traces: int = typer.Option(
        0, "--traces", min=0, metavar="N", help="Also write the rollouts of the first N problems, step by step."
    ),
) -> None:
    """Measure a run or a policy on held-out problems.

    pass@k, maj@k, distinct@k, answer entropy and how the ways to an answer differ, with intervals; with
    eval.denoising=true also when answers are fixed and how often they get lost.
    """
    words = split_overrides(overrides or [])
    from .. import build

    with interruptible("Nothing was written; start it again."):
        result = build.evaluate(
            target, overrides=words, split=split.value, output=output, checkpoint=checkpoint.value, traces=traces
        )
        other = (
            build.evaluate(compare, overrides=words, split=split.value, checkpoint=checkpoint.value)
            if compare
            else None
        )
    from ..report.tables import evaluation_tables

    typer.echo(evaluation_tables(result, other, format=format.value))
