"""One table record, four ways to write it. numpy only."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ArgumentError, unknown_name
from ..evaluation.compare import compare, summarise
from ..evaluation.result import EvalResult
from ..evaluation.statistics import Estimate
from .escape import escape_markdown, escape_terminal

Cell = Estimate | float | int | str | None
FORMATS = ("text", "markdown", "csv", "json")
MISSING = "–"
DIGITS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells under column names.

    Attributes:
        title: one line.
        columns: names; the first column holds the row's label.
        rows: cells; an `Estimate` is shown with its interval, None as a dash.
        signed: columns that hold differences, whose numbers carry their sign.
        digits: decimals of a column's numbers, where they are not three.
        optional: columns that a narrow terminal may leave out, first those that matter least.
        under: a column of counts that is shown below the row's label, to save width; files have it as it is.
        notes: sentences below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    signed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digits: Mapping[str, int] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    under: str | None = None

    def __post_init__(self) -> None:
        """Refuse a ragged table."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ArgumentError(
                    f"table {self.title!r} has {len(self.columns)} columns; a row has {len(row)}: {row}"
                )

    @property
    def left_aligned(self) -> list[bool]:
        """Columns that hold text."""
        return [any(isinstance(row[i], str) for row in self.rows) for i in range(len(self.columns))]

    def without(self, column: str) -> Table:
        """The same table without a column."""
        at = self.columns.index(column)
        rows = tuple((*row[:at], *row[at + 1 :]) for row in self.rows)
        return replace(self, columns=(*self.columns[:at], *self.columns[at + 1 :]), rows=rows)

    def shown(self) -> list[list[str]]:
        """Every cell as a person reads it, not yet escaped."""
        return [[self.show(cell, column) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def show(self, cell: Cell, column: str) -> str:
        """One cell as a person reads it."""
        return show(cell, signed=column in self.signed, digits=self.digits.get(column, DIGITS))

    def folded(self) -> tuple[Table, tuple[str, ...]]:
        """The table without its column `under`, and what that column says of each row, e.g. "4 seeds"."""
        if self.under is None:
            return self, ("",) * len(self.rows)
        at = self.columns.index(self.under)
        counts = tuple(_counted(row[at], self.under) for row in self.rows)
        return replace(self.without(self.under), under=None), counts

    def render(self, format: str) -> str:
        """The table as "text", "markdown", "csv" or "json"."""
        writers = {"text": to_text, "markdown": to_markdown, "csv": to_csv, "json": to_json}
        if format not in writers:
            raise ArgumentError(unknown_name("table format", format, FORMATS))
        return writers[format](self)


def show(cell: Cell, *, signed: bool = False, digits: int = DIGITS) -> str:
    """A cell as a person reads it: three decimals, the interval in brackets, thousands set apart.

    >>> show(0.4567), show(0.02, signed=True), show(None), show(16), show(215030)
    ('0.457', '+0.020', '–', '16', '215,030')
    """
    if isinstance(cell, Estimate):
        value, low, high = (show(each, signed=signed, digits=digits) for each in (cell.value, cell.low, cell.high))
        return f"{value} [{low}, {high}]"
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return MISSING
    if isinstance(cell, float):
        return f"{cell:+.{digits}f}" if signed else f"{cell:.{digits}f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def to_text(table: Table) -> str:
    """Aligned columns for a terminal."""
    lines = [[escape_terminal(cell) for cell in line] for line in (list(table.columns), *table.shown())]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    head, *body = (
        "  ".join(_aligned(*cell) for cell in zip(line, widths, table.left_aligned, strict=True)) for line in lines
    )
    rule = "  ".join("-" * width for width in widths)
    text = [escape_terminal(table.title), head, rule, *body, *(escape_terminal(note) for note in table.notes)]
    return "\n".join(line.rstrip() for line in text)


def to_markdown(table: Table) -> str:
    """A pipe table, everything in it escaped."""
    # The numbers in the cells are ours; only text can hold a model's or a user's words.
    cells = [
        [escape_markdown(shown) if isinstance(cell, str) else shown for cell, shown in zip(row, line, strict=True)]
        for row, line in zip(table.rows, table.shown(), strict=True)
    ]
    rule = ["---" if at_left else "--:" for at_left in table.left_aligned]
    lines = [_piped(line) for line in ([escape_markdown(column) for column in table.columns], rule, *cells)]
    notes = "".join(f"\n\n{escape_markdown(note)}" for note in table.notes)
    return f"**{escape_markdown(table.title)}**\n\n" + "\n".join(lines) + notes


def to_csv(table: Table) -> str:
    """One header line; a column with intervals becomes three: name, name low, name high."""
    wide = [any(isinstance(row[i], Estimate) for row in table.rows) for i in range(len(table.columns))]
    header = [
        name
        for column, is_wide in zip(table.columns, wide, strict=True)
        for name in ([column, f"{column} low", f"{column} high"] if is_wide else [column])
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        writer.writerow([value for cell, is_wide in zip(row, wide, strict=True) for value in _csv_cells(cell, is_wide)])
    return out.getvalue().rstrip("\n")


def to_json(table: Table) -> str:
    """`{"title", "columns", "rows": [{column: number, text, null or an estimate}], "notes"}`."""
    return json.dumps(as_plain(table), indent=1, allow_nan=False)


def as_plain(table: Table) -> dict[str, Any]:
    """What `to_json` writes, as plain values."""
    rows = [dict(zip(table.columns, (_plain(cell) for cell in row), strict=True)) for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows, "notes": list(table.notes)}


def evaluation_tables(result: EvalResult, other: EvalResult | None = None, *, format: str = "text") -> str:
    """What `steprs eval` prints: every statistic with its interval, a paired difference, and some completions.

    Args:
        result: an evaluation.
        other: a second one of the same problems; the difference is `result - other`.
        format: "text", "markdown", "csv" (statistics only) or "json".

    Raises:
        ArgumentError: an unknown format, or evaluations of different problems.
    """
    statistics = statistics_table(result, other)
    examples = examples_table(result)
    if format == "json":
        return json.dumps(
            {"statistics": as_plain(statistics), "examples": as_plain(examples)}, indent=1, allow_nan=False
        )
    if format == "csv" or not examples.rows:
        return statistics.render(format)
    return statistics.render(format) + "\n\n" + examples.render(format)


def statistics_table(result: EvalResult, other: EvalResult | None = None) -> Table:
    """Statistics by row; with a second evaluation also its values and the paired difference."""
    title = (
        f"{result.policy} on {result.task}, {result.split}: {len(result.problems)} problems x {result.samples} samples"
    )
    summary = summarise(result)
    if other is None:
        rows = tuple((name, estimate) for name, estimate in summary.items())
        return Table(title=title, columns=("statistic", "value"), rows=rows, notes=evaluation_notes(result))
    second, difference = summarise(other), compare(result, other)
    paired = tuple((name, summary[name], second[name], difference[name]) for name in difference)
    columns = ("statistic", *_two_labels(result.policy, other.policy), "difference")
    notes = (*evaluation_notes(result), *(f"{other.policy}: {note}" for note in evaluation_notes(other)))
    return Table(title=title, columns=columns, rows=paired, signed=("difference",), notes=notes)


def evaluation_notes(result: EvalResult) -> tuple[str, ...]:
    """How it was decoded, what differs from training, which prompts were left out, and what the intervals are."""
    settings, *others = decoding_notes(result)
    return (f"decoding: {settings}; seed {result.seed}; intervals: 95 % bootstrap over problems", *others)


def decoding_notes(result: EvalResult) -> tuple[str, ...]:
    """How it was decoded, what differs from training, and which prompts were left out."""
    notes = [", ".join(f"{name}={value}" for name, value in result.decoding.items())]
    if result.decode_differences:
        notes.append("decoding differs from training: " + "; ".join(result.decode_differences))
    if result.verifier_failures:
        notes.append(f"the verifier failed on {result.verifier_failures} answers, which count as wrong")
    if result.dropped:
        notes.append(f"{len(result.dropped)} prompts were too long and left out: {', '.join(result.dropped[:5])}")
    return tuple(notes)


def examples_table(result: EvalResult, count: int = 4) -> Table:
    """The first completion of some problems."""
    rows = tuple((e.prompt, e.completion, e.status) for e in result.examples[:count])
    return Table(title=f"completions of {result.policy}", columns=("prompt", "completion", "verdict"), rows=rows)


def _counted(cell: Cell, noun: str) -> str:
    """`1 seed`, `4 seeds`."""
    return f"{cell} {noun.removesuffix('s') if cell == 1 else noun}"


def _two_labels(first: str, second: str) -> Sequence[str]:
    return (first, second) if first != second else (f"{first} (1)", f"{second} (2)")


def _aligned(cell: str, width: int, at_left: bool) -> str:
    return cell.ljust(width) if at_left else cell.rjust(width)


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(cell: Cell) -> Any:
    if isinstance(cell, Estimate):
        return cell.to_json()
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _csv_cells(cell: Cell, wide: bool) -> list[Any]:
    if isinstance(cell, Estimate):
        return [_plain(cell.value), _plain(cell.low), _plain(cell.high)]
    return [_plain(cell), None, None] if wide else [_plain(cell)]
