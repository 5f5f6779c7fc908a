"""`steprs theory`: the method on paper, as tables and pictures, and the exact laboratory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ArgumentError
from .common import Format, interruptible

if TYPE_CHECKING:
    from ..theory import Sheet

app = typer.Typer(
    help="The method on paper: curves, landmarks, finite groups, an exact laboratory.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
RATES = "0.01,0.02,0.05,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95,0.99"
FEW_RATES = "0.02,0.05,0.1,0.25,0.5,0.75,0.9"
ARMS = (
    "constant 4",
    "linear 4 0",
    "linear 0 4",
    "constant -2",
    "standardised",
    "pass-rate 0.2 linear 4 0 / linear 0 4",
)


class Optimiser(StrEnum):
    """How the laboratory steps."""

    adam = "adam"
    norm = "norm"


FORMAT = typer.Option(Format.text, help="How the table is printed.")
PICTURE = typer.Option(None, "-o", "--output", metavar="FILE", help="Also draw it: a .png or .svg file.")
COEFS = typer.Option("2,4", "-b", "--risk-coef", metavar="B,...", help="Risk coefficients, either sign.")


@app.command("curve")
def curve(
    risk_coef: str = COEFS,
    pass_rate: str = typer.Option(RATES, "-p", "--pass-rate", metavar="P,...", help="Pass rates of the table."),
    group_size: str = typer.Option("", "-g", "--group-size", metavar="G,...", help="Also c_G for these group sizes."),
    k: str = typer.Option("16", "-k", metavar="K,...", help="Tries of the pass@k weight."),
    format: Format = FORMAT,
    output: Path = PICTURE,
) -> None:
    """Show how much a prompt weighs by its pass rate.

    c(p, b) and the RMS advantage sqrt(p (1 - p)) c, beside the weights of standardised GRPO, MaxRL and pass@k.
    """
    coefs, rates = _numbers(risk_coef, "--risk-coef"), _numbers(pass_rate, "--pass-rate")
    sizes, tries = _whole(group_size, "--group-size"), _whole(k, "-k")
    path = _picture(output)
    from ..theory import curve_sheet

    _print([curve_sheet(rates, coefs, group_sizes=sizes, k=tries)], format)
    if path:
        from ..theory.pictures import draw_curves

        _drawn(draw_curves(path, coefs, group_sizes=sizes, k=tries))


@app.command("landmarks")
def landmarks(
    risk_coef: str = typer.Option("", "-b", "--risk-coef", metavar="B,...", help="Coefficients; 1,2,4,-2 by default."),
    pass_rate: str = typer.Option(
        "", "-p", "--pass-rate", metavar="P0,...", help="Measured pass rates, for the rules."
    ),
    group_size: int = typer.Option(16, "-g", "--group-size", min=2, help="Group size of the bounds."),
    weight: float = typer.Option(4.0, help="Input of the rule weight-cap."),
    target: float = typer.Option(0.5, help="Input of the rule target."),
    format: Format = FORMAT,
    output: Path = PICTURE,
) -> None:
    """Show where c(p, b) crosses 1 and peaks, and what calibration rules give.

    With -b the landmarks of these coefficients, with -p the coefficient of every rule at these pass rates.
    """
    given = risk_coef or ("" if pass_rate else "1,2,4,-2")
    coefs, rates = _numbers(given, "--risk-coef"), _numbers(pass_rate, "--pass-rate")
    path = _picture(output)
    from ..theory import coefficient_sheet, rule_sheet

    sheets = [coefficient_sheet(coefs, group_size=group_size)] if coefs else []
    _print([*sheets, *([rule_sheet(rates, weight=weight, target=target)] if rates else [])], format)
    if path:
        from ..theory.pictures import draw_landmarks

        _drawn(draw_landmarks(path))


@app.command("schedule")
def schedule(
    words: str = typer.Argument("linear 4 0", metavar="SCHEDULE", help="E.g. 'linear 4 0', 'power 0 4 gamma=2'."),
    pass_rate: str = typer.Option(FEW_RATES, "-p", "--pass-rate", metavar="P,...", help="Pass rates of the table."),
    points: int = typer.Option(6, min=2, max=1000, help="Values of progress, from 0 to 1."),
    group_size: int = typer.Option(None, "-g", "--group-size", min=2, help="c_G of this group size in place of c."),
    format: Format = FORMAT,
    output: Path = PICTURE,
) -> None:
    """Show the coefficient over denoising progress, and c(p, b(tau)).

    Families: constant, linear, cosine, power, sigmoid, exponential, geometric, step; 'knots 0:4 1:0'; 'reversed ...';
    'pass-rate 0.2 linear 4 0 / linear 0 4'.
    """
    path, rates = _picture(output), _numbers(pass_rate, "--pass-rate")
    from ..theory import parse_schedule, schedule_sheet

    chosen = parse_schedule(words)
    progress = [i / (points - 1) for i in range(points)]
    _print([schedule_sheet(chosen, rates, progress, group_size=group_size)], format)
    if path:
        from ..theory.pictures import draw_schedule

        _drawn(draw_schedule(path, chosen, group_size=group_size))


@app.command("finite-group")
def finite_group(
    words: str = typer.Argument("constant 2", metavar="SCHEDULE", help="A coefficient, or any schedule."),
    pass_rate: str = typer.Option(FEW_RATES, "-p", "--pass-rate", metavar="P,...", help="True pass rates."),
    group_size: str = typer.Option("4,8,16,64", "-g", "--group-size", metavar="G,...", help="Group sizes."),
    progress: str = typer.Option("0", "-t", "--progress", metavar="TAU,...", help="Values of denoising progress."),
    format: Format = FORMAT,
    output: Path = PICTURE,
) -> None:
    """Show how much of c(p, b) groups of finite size realise on average.

    Exact binomial expectations, also for schedules that look at the group's own pass rate.
    """
    path, rates = _picture(output), _numbers(pass_rate, "--pass-rate")
    sizes, taus = _whole(group_size, "--group-size"), _numbers(progress, "--progress")
    from ..theory import finite_group_sheet, parse_schedule

    chosen = parse_schedule(words)
    _print([finite_group_sheet(chosen, rates, sizes, taus)], format)
    if path:
        from ..theory.pictures import draw_finite_groups

        _drawn(draw_finite_groups(path, chosen, sizes, taus))


@app.command("compare")
def compare(
    risk_coef: str = COEFS,
    pass_rate: str = typer.Option(FEW_RATES, "-p", "--pass-rate", metavar="P,...", help="Pass rates to compare at."),
    group_size: str = typer.Option("16", "-g", "--group-size", metavar="G,...", help="Group sizes of c_G."),
    k: str = typer.Option("4,16", "-k", metavar="K,...", help="Tries of the pass@k weight."),
    same_mean: bool = typer.Option(False, "--same-mean", help="Divide each by its mean over the pass rates."),
    format: Format = FORMAT,
    output: Path = PICTURE,
) -> None:
    """Show all weights side by side at given pass rates.

    Centred, c, c_G, standardised, MaxRL and pass@k; with --same-mean only their shapes differ.
    """
    coefs, rates = _numbers(risk_coef, "--risk-coef"), _numbers(pass_rate, "--pass-rate")
    sizes, tries = _whole(group_size, "--group-size"), _whole(k, "-k")
    path = _picture(output)
    from ..theory import compare_sheet, prompt_weights

    _print([compare_sheet(rates, coefs, group_sizes=sizes, k=tries, same_mean=same_mean)], format)
    if path:
        from ..theory.pictures import draw_compare

        weights = prompt_weights(rates, coefs, group_sizes=sizes, k=tries, same_mean=same_mean)
        _drawn(draw_compare(path, weights, rates, same_mean=same_mean))


@app.command("lab")
def lab(
    arm: list[str] = typer.Option(list(ARMS), "--arm", help="A schedule, with control=... or base=...; repeat it."),
    prompts: int = typer.Option(48, help="Prompts to learn from; as many are held out."),
    vocabulary: int = typer.Option(2, help="Tokens."),
    states: int = typer.Option(6, help="Denoising states; there are vocabulary^states answers."),
    features: int = typer.Option(8, help="Features of a prompt, through which parameters are shared."),
    right_answers: str = typer.Option("2,6", metavar="LOW,HIGH", help="Fewest and most right answers of a prompt."),
    instances: int = typer.Option(12, help="Independent worlds; standard errors are over them."),
    capability: float = typer.Option(0.06, help="Pass rate of the base policy."),
    group_size: int = typer.Option(16, "-g", "--group-size", help="Group size."),
    updates: int = typer.Option(60, help="Exact updates."),
    optimiser: Optimiser = typer.Option(Optimiser.adam, help="adam, or norm: steps of one norm."),
    learning_rate: float = typer.Option(None, help="0.05 for adam and 0.3 for norm by default."),
    tries: int = typer.Option(16, "-k", help="Tries of pass@k and of distinct right answers."),
    seed: int = typer.Option(0, help="Of the worlds."),
    format: Format = FORMAT,
    output: Path = PICTURE,
) -> None:
    """Follow schedules and controls by their exact expected gradient.

    A masked decision process small enough to enumerate: no rollouts, no sampling noise, seconds. Arms are compared
    with centred GRPO on held-out prompts; controls are flat, reverse, state-only, constant.
    """
    path, fewest_most = _picture(output), _whole(right_answers, "--right-answers")
    if len(fewest_most) != 2:
        raise ArgumentError(f"--right-answers is {right_answers!r}; give two whole numbers, e.g. 2,6")
    from ..progress import track
    from ..theory import LabSettings, parse_arm, run_lab

    settings = LabSettings(
        prompts=prompts, vocabulary=vocabulary, states=states, features=features,
        right_answers=(fewest_most[0], fewest_most[1]), instances=instances, capability=capability,
        group_size=group_size, updates=updates, optimiser=optimiser.value, learning_rate=learning_rate, tries=tries,
        seed=seed,
    )  # fmt: skip
    followed = [parse_arm(words) for words in arm]
    # Lines of progress would stand in the middle of a table that another program reads.
    shown = track("laboratory", len(followed) + 1, show=format is Format.text)
    with interruptible("Nothing was written; start it again."), shown as bar:
        result = run_lab(followed, settings, advance=lambda label: bar.advance(1, label))
    _print([result.sheet()], format)
    if path:
        from ..theory.pictures import draw_lab

        _drawn(draw_lab(path, result))


def _print(sheets: Sequence[Sheet], format: Format) -> None:
    """Print sheets through the tables of the report; several as one JSON list, or apart from each other."""
    import dataclasses
    import json

    from ..report.tables import Table, as_plain

    if format is Format.csv and len(sheets) > 1:
        raise ArgumentError("csv holds one table; ask for -b or -p alone, or for --format json")
    tables = [Table(**{f.name: getattr(sheet, f.name) for f in dataclasses.fields(sheet)}) for sheet in sheets]
    if format is Format.json and len(tables) > 1:
        typer.echo(json.dumps([as_plain(table) for table in tables], indent=1, allow_nan=False))
        return
    typer.echo("\n\n".join(table.render(format.value) for table in tables))


def _picture(output: Path | None) -> Path | None:
    """The path of the picture, checked before any work is done."""
    if output is None:
        return None
    from ..theory.pictures import checked_path

    return checked_path(output)


def _drawn(path: Path) -> None:
    typer.echo(f"picture: {path}", err=True)


def _numbers(text: str, option: str) -> list[float]:
    """`0.1,0.5` as numbers; an empty text is none.

    >>> _numbers("4,-2", "--risk-coef")
    [4.0, -2.0]
    """
    try:
        return [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise ArgumentError(f"{option} is {text!r}; give numbers with commas between them, e.g. 0.05,0.5") from None


def _whole(text: str, option: str) -> list[int]:
    numbers = _numbers(text, option)
    if not all(math.isfinite(number) and number == int(number) for number in numbers):
        raise ArgumentError(f"{option} is {text!r}; give whole numbers with commas between them, e.g. 4,16")
    return [int(number) for number in numbers]
