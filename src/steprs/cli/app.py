"""The commands put together, and what a person sees when one of them fails."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence

import typer

from ..errors import StepRSError
from . import (
    calibrate,
    convert,
    demo,
    doctor,
    estimators,
    evaluate,
    export,
    pretrain,
    report,
    rescore,
    settings,
    study,
    tasks,
    theory,
    train,
)

app = typer.Typer(
    name="steprs",
    help="Reinforcement learning with verifiable rewards for diffusion language models.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("calibrate")(calibrate.calibrate)
app.command("report")(report.report)
app.command("pretrain")(pretrain.pretrain)
app.command("rescore")(rescore.rescore)
app.command("convert")(convert.convert)
app.command("export")(export.export)
app.add_typer(study.app, name="study")
app.add_typer(tasks.app, name="tasks")
app.add_typer(estimators.app, name="estimators")
app.add_typer(theory.app, name="theory")
app.command("settings")(settings.settings)
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error (anywhere on the line)."),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"steprs {installed('steprs')}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors made on purpose are one line on stderr and exit code 2.

    Args:
        arguments: what stands after `steprs`; the process's own when None.
    """
    warnings.showwarning = _one_line_warning
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    _quiet_libraries()
    try:
        app(args=[part for part in given if part != "--debug"], prog_name="steprs")
    except StepRSError as error:
        if debug:
            traceback.print_exc()
        hint = "" if debug else "\n(--debug shows where this comes from)"
        typer.echo(f"steprs: {type(error).__name__}: {error}{hint}", err=True)
        sys.exit(2)


def _one_line_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning is for the person at the terminal, without the line of source that gave it."""
    typer.echo(f"steprs: warning: {message}", err=True)


def _quiet_libraries() -> None:
    """Advice meant for people who call these libraries themselves would bury our own lines."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
