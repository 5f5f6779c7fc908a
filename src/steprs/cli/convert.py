"""`steprs convert`."""

from __future__ import annotations

from pathlib import Path

import typer


def convert(
    source: str = typer.Argument(..., help="A causal Llama, Qwen2 or Qwen3 checkpoint: a folder or a Hub name."),
    output: Path = typer.Option(..., "-o", "--output", metavar="DIR", help="A folder that is not there yet."),
    mask_token: str = typer.Option(None, metavar="TOKEN", help="Its mask; by default a spare token or a new one."),
    shift: bool = typer.Option(True, "--shift/--no-shift", help="The head goes on predicting the next token."),
    block_size: int = typer.Option(None, min=1, help="Decode in blocks; by default the whole completion at once."),
    revision: str = typer.Option(None, help="Of a Hub model."),
) -> None:
    """Make a diffusion model of a causal one; it has to be adapted afterwards (steprs pretrain)."""
    from ..policies.converting import convert as convert_checkpoint

    made = convert_checkpoint(
        source, output, mask_token=mask_token, shifted=shift, block_size=block_size, revision=revision
    )
    rows = f", the embedding grew by {made.added_rows} row(s)" if made.added_rows else ""
    typer.echo(f"policy: {made.folder}")
    typer.echo(f"mask token: {made.mask_token} (id {made.mask_token_id}, {made.mask_is}){rows}")
    typer.echo(
        f"attention: {'both directions' if made.block_size is None else f'blocks of {made.block_size}'}, "
        f"head: {'next token' if made.shifted else 'own token'}"
    )
    typer.echo(f"adapt it with: steprs pretrain pretrain/adapt policy.path={made.folder}")
