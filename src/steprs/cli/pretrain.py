"""`steprs pretrain`."""

from __future__ import annotations

from pathlib import Path

import typer

from .common import interruptible, split_overrides


def pretrain(
    config: str = typer.Argument(..., help="A YAML file or a shipped name such as pretrain/tiny."),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings, e.g. updates=500."),
    output: Path = typer.Option(None, "-o", "--output", metavar="DIR", help="Where the policy is written."),
) -> None:
    """Make a tiny policy from written solutions."""
    from ..config import PretrainConfig, load_config
    from ..configs import find_config
    from ..errors import RunFolderError

    settings = load_config(find_config(config), split_overrides(overrides or []), model=PretrainConfig)
    from .. import build

    folder = output or Path(settings.output or f"runs/pretrain-{settings.name}")
    if (folder / "config.json").exists():
        raise RunFolderError(f"{folder} holds a policy or a run already; choose another -o folder, or move it away")
    with interruptible("Pretraining writes its policy at the end; start it again."):
        written = build.pretrain(settings, output=folder)
    task = "" if settings.task.name == "countdown" else f" task.name={settings.task.name}"
    task += "".join(f" task.options.{name}={value}" for name, value in settings.task.options.items())
    typer.echo(f"policy: {written}\ntrain it with: steprs train train/countdown policy.path={written}{task}")
