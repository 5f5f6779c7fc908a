"""`steprs settings`: what can be set in a run file, what is allowed, what it means."""

from __future__ import annotations

import json

import typer


def settings(
    words: str = typer.Argument("", help="A section or setting, e.g. risk or train.group_size, or a word to look for."),
    pretrain: bool = typer.Option(False, "--pretrain", help="Settings of `steprs pretrain` instead of a run's."),
    as_json: bool = typer.Option(False, "--json", help="Print records instead of text."),
) -> None:
    """Show settings with their defaults; any of them can be given as `section.key=value`."""
    from ..configs.listing import by_section, describe_section, list_settings, matching_settings

    kind = "pretrain" if pretrain else "run"
    found = matching_settings(words, kind) if words else list_settings(kind)
    if as_json:
        typer.echo(json.dumps(found, indent=1, allow_nan=False))
        return
    for section, records in by_section(found).items():
        if section:
            typer.echo(f"\n{section}: {' '.join(describe_section(section, kind).split())}\n")
        for record in records:
            typer.echo(f"  {record['key']}={json.dumps(record['default'])}")
            typer.echo(f"      {record['allowed']}{'; ' if record['meaning'] else ''}{record['meaning']}")
