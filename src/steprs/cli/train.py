"""`steprs train`."""

from __future__ import annotations

from pathlib import Path

import typer

from .common import interruptible, load_run


def train(
    config: str = typer.Argument(..., help="A YAML file, a shipped name such as train/countdown, or a run folder."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings, e.g. train.updates=20."),
    output: Path = typer.Option(None, "-o", "--output", metavar="DIR", help="Run folder; runs/<name> by default."),
    resume: bool = typer.Option(False, "--resume", help="Go on where the run in the folder stopped."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the plan and a memory estimate; train nothing."),
) -> None:
    """Train a policy into a run folder.

    `steprs eval` evaluates the folder, and --resume goes on where a stopped run left it.
    """
    run = load_run(config, overrides or [])
    from .. import build

    if dry_run:
        typer.echo(build.plan_text(run))
        return
    folder = output or (Path(config) if Path(config).is_dir() else None) or Path(run.output or f"runs/{run.name}")
    with interruptible(f"Go on with: steprs train {folder} --resume"):
        written = build.train(run, resume=resume, output=folder)
    typer.echo(f"run folder: {written}\nevaluate it with: steprs eval {written}")
