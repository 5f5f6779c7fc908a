"""`steprs demo`."""

from __future__ import annotations

from pathlib import Path

import typer

from .common import interruptible, split_overrides


def demo(
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings, e.g. train.updates=20."),
    output: Path = typer.Option(Path("runs/demo"), "-o", "--output", metavar="DIR", help="Where all of it is written."),
) -> None:
    """Run the whole method in minutes and report it.

    The base policy measured, centred GRPO and StepRS-GRPO in both directions trained, a table and plots.
    """
    words = split_overrides(overrides or [])
    from ..experiments.demo import run_demo

    with interruptible("Run the same command again to go on with the arm that was stopped."):
        run_demo(output, overrides=words)
