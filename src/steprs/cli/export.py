"""`steprs export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer

from .common import Which


class Numbers(StrEnum):
    """Format of the weights written."""

    float32 = "float32"
    bfloat16 = "bfloat16"


def export(
    target: str = typer.Argument(..., metavar="RUN_OR_CHECKPOINT", help="A run folder or a checkpoint folder."),
    output: Path = typer.Option(..., "-o", "--output", metavar="DIR", help="A folder that is not there yet."),
    merge: bool = typer.Option(False, "--merge", help="Add adapters to the weights."),
    checkpoint: Which = typer.Option(Which.best, help="Of a run: the best on dev, or the last."),
    dtype: Numbers = typer.Option(None, help="Format of the weights; by default theirs."),
) -> None:
    """Write a policy as its family publishes it, for the family's own code, transformers or peft."""
    from .. import build

    written = build.export(
        target, output, merge=merge, checkpoint=checkpoint.value, dtype=dtype.value if dtype else None
    )
    what = "adapters (peft)" if (written / "adapter_config.json").is_file() else "weights"
    typer.echo(f"{what}: {written}")
