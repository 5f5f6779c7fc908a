"""`steprs demo`."""

from __future__ import annotations

from pathlib import Path

import typer

from .common import interruptible, split_overrides


def demo(
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings of all arms."),
    output: Path = typer.Option(Path("runs/demo"), "-o", "--output", metavar="DIR", help="Where all of it is written."),
    updates: int = typer.Option(None, min=1, help="Updates of each arm; the shipped configuration's by default."),
    problems: int = typer.Option(256, min=1, help="Held-out problems of the final table."),
    samples: int = typer.Option(16, min=1, help="Completions for each of them."),
    resume: bool = typer.Option(False, "--resume", help="Go on with a stopped demo, or show a finished one again."),
) -> None:
    """Run the whole method in minutes and report it.

    The base policy measured, centred GRPO and StepRS-GRPO in both directions trained, a table and plots.
    """
    words = split_overrides(overrides or [])
    from ..experiments.demo import run_demo

    with interruptible("Run the same command again: what is finished is kept."):
        run_demo(output, resume=resume, updates=updates, problems=problems, samples=samples, overrides=words)
