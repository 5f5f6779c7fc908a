"""`steprs tasks`: what there is to solve, what it looks like, and whether its verifier can be trusted."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ConfigError
from .common import split_overrides

if TYPE_CHECKING:
    from ..tasks import AbstractTask

app = typer.Typer(help="Look at tasks.", no_args_is_help=True, rich_markup_mode=None)


FILE = typer.Option(None, "--file", metavar="FILE", help="Rows for a task from a file; the same as file=FILE.")


class Split(StrEnum):
    """Disjoint problems."""

    train = "train"
    dev = "dev"
    test = "test"


@app.command("list")
def list_tasks() -> None:
    """Show every task with its splits and lengths."""
    from ..tasks.listing import list_tasks as records

    for record in records():
        sizes = ", ".join(f"{record[split]:,} {split}" for split in Split if split in record)
        typer.echo(record["name"])
        typer.echo(f"  {record['about']}")
        source = record.get("source", "problems are generated")
        typer.echo(f"  {sizes or source}; completions of up to {record['completion_length']} words")


@app.command("sample")
def sample(
    name: str = typer.Argument(..., help="A task, e.g. countdown or reasoning_gym:<name>."),
    options: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="The task's own options."),
    split: Split = typer.Option(Split.train, help="Which problems."),
    count: int = typer.Option(3, "-n", min=1, help="How many problems."),
    file: Path = FILE,
) -> None:
    """Show problems with their gold completions and what the verifier says of these."""
    from ..tasks.listing import sample_task

    for record in sample_task(_build(name, options, file), split.value, count):
        typer.echo("\n".join(f"{key:<16} {value}" for key, value in record.items() if value is not None) + "\n")


@app.command("validate")
def validate(
    name: str = typer.Argument(..., help="A task, e.g. countdown or reasoning_gym:<name>."),
    options: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="The task's own options."),
    count: int = typer.Option(200, "-n", min=1, help="Problems of each split that are corrupted, too."),
    file: Path = FILE,
) -> None:
    """Show that the verifier takes gold answers and refuses corrupted ones; exit code 1 if it does not.

    Of a file every row is looked at: those that cannot be used are named by file and line, and mean exit code 1.
    """
    from ..tasks.listing import MAX_FAILURES, validate_task

    report = validate_task(_build(name, options, file, every_row=True), count)
    for line in report["rows"].lines(MAX_FAILURES) if report["rows"] else ():
        typer.echo(line)
    typer.echo(f"{report['task']}: {report['problems']} problems of three splits")
    typer.echo(f"  gold completions taken         {report['gold_right']} of {report['problems']}")
    if report["undecided"]:
        typer.echo(f"  not decided within the bound   {report['undecided']} of {report['problems']}")
    typer.echo(f"  corrupted completions refused  {report['corrupted_refused']} of {report['corrupted']}")
    for failure in report["failures"]:
        typer.echo(
            f"  ! {failure['id']} ({failure['split']}): {failure['kind']} completion {failure['text']!r} "
            f"is {failure['got']}, expected {failure['expected']}"
        )
    if not report["passed"]:
        raise typer.Exit(1)


def _build(name: str, options: list[str] | None, file: Path | None, *, every_row: bool = False) -> AbstractTask:
    """The task; with `every_row` broken rows of its file are reported and do not stop anything."""
    from ..configs.loading import flat_overrides
    from ..tasks import FILE_TASKS, get_task

    words = split_overrides(options or [])
    given = flat_overrides(words)
    typed = [word.partition("=")[0].strip() for word in words] + ["file"] * (file is not None)
    for key in typed:
        if typed.count(key) > 1:
            raise ConfigError(f"{key} is given {typed.count(key)} times; give it once (--file FILE is file=FILE)")
    if file is not None:
        given["file"] = str(file)
    if every_row and name in FILE_TASKS:
        given |= {"bad_rows": "skip", "max_bad_share": 1.0}
    return get_task(name, **given)
