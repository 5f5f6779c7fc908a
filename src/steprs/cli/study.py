"""`steprs study`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ConfigError
from .common import interruptible, split_overrides

if TYPE_CHECKING:
    from ..experiments.study import Study

app = typer.Typer(
    help="Many runs that answer one question: arms x seeds, kept, resumed and reported.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("run")
def run(
    name: str = typer.Argument(..., metavar="STUDY", help="A shipped study or a YAML file."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings of all runs."),
    output: Path = typer.Option(
        None, "-o", "--out", "--output", metavar="DIR", help="The study's folder; runs/studies/STUDY by default."
    ),
    store: Path = typer.Option(None, metavar="DIR", help="Where runs lie; `store` beside the study by default."),
    seeds: str = typer.Option(None, metavar="N or A,B,..", help="The first N of the study's seeds, or these."),
    jobs: int = typer.Option(None, min=1, help="Processes at a time; one a core by default."),
    smoke: bool = typer.Option(False, "--smoke", help="Four updates, two seeds: whether everything works."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check every run, say what it costs, and stop."),
) -> None:
    """Run a study, or go on with one: what is finished is kept, a run that was stopped resumes."""
    words = split_overrides(overrides or [])
    study = _study(name, words, seeds)
    if smoke:
        study = study.smoke()
    folder = output or Path("runs/studies") / study.name
    from ..experiments.jobs import processes_at_once

    at_once = jobs or processes_at_once(8)
    if dry_run:
        from ..experiments.overview import plan_text

        typer.echo(plan_text(study, folder, store, at_once))
        return
    from ..experiments.runner import run_study

    with interruptible("Run the same command again: what is finished is kept."):
        run_study(study, folder, store=store, at_once=at_once)


@app.command("list")
def list_studies() -> None:
    """The shipped studies and what each could show."""
    from ..experiments.presets import PRESETS

    for name, make in PRESETS.items():
        study = make()
        runs = len(study.arms) * len(study.contexts) * len(study.seeds)
        typer.echo(f"{name:<14} {runs:>3} runs  {study.claim}")


@app.command("show")
def show(
    name: str = typer.Argument(..., metavar="STUDY", help="A shipped study or a YAML file."),
    yaml: bool = typer.Option(False, "--yaml", help="As a file to start a study of your own from."),
) -> None:
    """A study's arms and what each changes."""
    study = _study(name, [], None)
    if yaml:
        from yaml import safe_dump

        typer.echo(safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True), nl=False)
        return
    from ..experiments.overview import study_text

    typer.echo(study_text(study))


@app.command("status")
def status(folder: Path = typer.Argument(..., metavar="DIR", help="A study's folder.")) -> None:
    """How far a study is."""
    from ..experiments.overview import status_text

    typer.echo(status_text(folder))


def _study(name: str, words: list[str], seeds: str | None) -> Study:
    from ..config import flat_overrides
    from ..experiments.presets import preset
    from ..experiments.study import load_study

    study = load_study(name) if Path(name).is_file() else preset(name)
    study = study.with_fields(flat_overrides(words))
    return study if seeds is None else study.model_copy(update={"seeds": _seeds(seeds, study.seeds)})


def _seeds(text: str, own: tuple[int, ...]) -> tuple[int, ...]:
    """`4` is the first four of the study's own, `1,2,3` are these.

    >>> _seeds("2", (101, 102, 103)), _seeds("7,8", (101,))
    ((101, 102), (7, 8))
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError(f"--seeds {text!r}; give a number of seeds (4) or the seeds themselves (1,2,3)")
    numbers = tuple(int(part) for part in parts)
    if len(numbers) > 1 or "," in text:
        if len(set(numbers)) < len(numbers):
            raise ConfigError(f"--seeds {text!r} names a seed twice; each may run once")
        return numbers
    if not 1 <= numbers[0] <= len(own):
        raise ConfigError(f"--seeds {text}: the study has {len(own)} seeds of its own; name others as a list: 1,2,3")
    return own[: numbers[0]]
