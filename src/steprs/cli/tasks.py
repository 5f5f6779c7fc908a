"""`steprs tasks`: what there is to solve, what it looks like, and whether its verifier can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .common import split_overrides

if TYPE_CHECKING:
    from ..tasks import AbstractTask

app = typer.Typer(help="Look at tasks.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_tasks() -> None:
    """Every task with its splits and lengths."""
    from ..tasks.listing import list_text

    typer.echo(list_text())


@app.command("sample")
def sample(
    name: str = typer.Argument(..., help="A task, e.g. countdown or reasoning_gym:<name>."),
    options: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="The task's own options."),
    split: str = typer.Option("train", help="train, dev or test."),
    count: int = typer.Option(3, "-n", min=1, help="How many problems."),
) -> None:
    """Problems of a task with their gold completions."""
    from ..tasks.listing import sample_text

    typer.echo(sample_text(_build(name, options), split=split, count=count))


@app.command("validate")
def validate(
    name: str = typer.Argument(..., help="A task, e.g. countdown or reasoning_gym:<name>."),
    options: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="The task's own options."),
    count: int = typer.Option(100, "-n", min=1, help="Problems of each split."),
) -> None:
    """Show that the verifier takes gold answers and refuses corrupted ones; exit code 1 if it does not."""
    from ..tasks.listing import validate_text

    text, passed = validate_text(_build(name, options), count=count)
    typer.echo(text)
    if not passed:
        raise typer.Exit(1)


def _build(name: str, options: list[str] | None) -> AbstractTask:
    import yaml

    from ..tasks import get_task

    pairs = (word.partition("=") for word in split_overrides(options or []))
    return get_task(name, **{key: yaml.safe_load(value) for key, _, value in pairs})
