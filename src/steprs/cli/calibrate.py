"""`steprs calibrate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .common import Format, interruptible, load_run

if TYPE_CHECKING:
    from ..config import RunConfig
    from ..evaluation.capability import Capability
    from ..report.tables import Table

BAR = 40


def calibrate(
    config: str = typer.Argument(..., help="A YAML file, a shipped name such as train/countdown, or a run folder."),
    overrides: list[str] = typer.Argument(
        None, metavar="[KEY=VALUE]...", help="Settings, e.g. risk.calibration.rule=odds."
    ),
    output: Path = typer.Option(
        None, "-o", "--output", metavar="DIR", help="The folder of the run that is to use it; runs/<name> by default."
    ),
    format: Format = typer.Option(Format.text, help="How the table is printed."),
) -> None:
    """Measure capability on training prompts and freeze the risk scale for a run.

    Prints every rule's coefficient with its interval, the prompts' pass rates and the share of groups with a signal.
    A run in the same folder with risk.scale=calibrated then starts from the frozen scale.
    """
    run = load_run(config, overrides or [])
    from .. import build
    from ..evaluation.capability import Capability

    folder = output or Path(run.output or f"runs/{run.name}")
    with interruptible("Nothing was written; start it again."):
        frozen = build.calibrate(run, output=folder)
    capability = Capability.from_json(frozen["capability"])
    table = _rules(capability, run)
    if format is Format.json:
        from ..report.tables import as_plain

        typer.echo(json.dumps({**frozen, "rules": as_plain(table)["rows"]}, indent=1))
        return
    typer.echo(table.render(format.value))
    if format is Format.text:
        typer.echo("\n" + _histogram(capability, run.train.group_size))
        typer.echo(
            f"\nscale {frozen['scale']:.4g} by {build.chosen_rule(run)}, frozen in {folder / 'calibration.json'}"
        )


def _rules(capability: Capability, run: RunConfig) -> Table:
    from .. import build
    from ..report.tables import Table

    used = build.chosen_rule(run)
    return Table(
        title=f"pass rate {capability.pass_rate:.3f} [{capability.low:.3f}, {capability.high:.3f}] of "
        f"{len(capability.ids)} training prompts x {capability.samples} samples",
        columns=("rule", "risk_coef", ""),
        rows=tuple(
            (rule, found, "<- used" if rule == used else "")
            for rule, found in build.rule_estimates(capability, run).items()
        ),
        notes=("95 % intervals over prompts",),
    )


def _histogram(capability: Capability, group_size: int) -> str:
    """Prompts by pass rate as bars, and what groups of the run's size can learn from."""
    few = capability.samples <= 16  # then each possible rate has a line
    bins = 10
    counts = capability.by_right_samples() if few else capability.histogram(bins)
    most = max(counts)
    lines = ["prompts by pass rate"]
    for number, count in enumerate(counts):
        label = f"{number / capability.samples:.3f}" if few else f"{number / bins:.1f} - {(number + 1) / bins:.1f}"
        lines.append(f"  {label} {count:>5}  {'#' * round(BAR * count / most)}".rstrip())
    alive = capability.expected_signal(group_size)
    lines.append(
        f"{capability.share_with_signal:.0%} of the prompts were solved sometimes, not always; of groups of "
        f"{group_size} about {alive:.0%} carry a signal"
    )
    return "\n".join(lines)
