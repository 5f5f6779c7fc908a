"""`steprs estimators`: which advantage estimators there are, what each needs and where it comes from."""

from __future__ import annotations

import json

import typer

app = typer.Typer(help="Look at advantage estimators.", no_args_is_help=True, rich_markup_mode=None)
JSON = typer.Option(False, "--json", help="Print records instead of text.")
# Lines of `show`, with the words for them; settings and formula stand above.
SHOWN = {
    "role": "role",
    "granularity": "differs by",
    "coupling": "depends on",
    "requires": "needs",
    "zero_sum": "sums to 0 over",
    "alive": "alive on equal rewards",
    "shift_invariant": "shift invariant",
    "reweights": "reweights",
    "binary": "rewards 0 and 1 only",
    "extra_forwards": "extra forwards",
    "verifier_calls": "extra verifier calls",
    "source": "source",
    "read": "what was read",
    "fidelity": "fidelity",
    "notes": "notes",
}


@app.command("list")
def list_estimators(as_json: bool = JSON) -> None:
    """Show every estimator with what is peculiar about it."""
    from ..estimators.listing import list_estimators as records
    from ..estimators.listing import traits

    found = records()
    if as_json:
        typer.echo(json.dumps(found, indent=1, allow_nan=False))
        return
    for record in found:
        typer.echo(f"{record['name']:<16} {record['title']}")
        typer.echo(f"  {'; '.join([record['role'], *traits(record)])}")


@app.command("show")
def show(
    name: str = typer.Argument(..., help="An estimator, e.g. maxrl; `steprs estimators list` has them."),
    as_json: bool = JSON,
) -> None:
    """Show an estimator's formula, its settings with their defaults, and what holds for its advantages."""
    from ..estimators.listing import describe_estimator

    record = describe_estimator(name)
    if as_json:
        typer.echo(json.dumps(record, indent=1, allow_nan=False))
        return
    typer.echo(f"{record['name']}: {record['title']}\n\n{record['formula']}\n")
    settings = ", ".join(f"{key} = {value}" for key, value in record["settings"].items())
    for words, value in {"settings": settings, **{words: record[key] for key, words in SHOWN.items()}}.items():
        typer.echo(f"{words:<23}{_said(value)}")


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "nothing" if isinstance(value, list) else str(value) or "none"
